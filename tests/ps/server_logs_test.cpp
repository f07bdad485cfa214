// The log of each server, its way to the coordinator, and the merge of all logs into one order.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ps/server/update_logs.h"
#include "tests/ps/cluster_parts.h"
#include "tests/ps/refusals.h"

namespace pushpull {
namespace {

wire::Applied applied(int rank, int64_t step, Range range, std::vector<int64_t> reads) {
  wire::Applied out;
  out.set_rank(rank);
  out.set_step(step);
  out.set_lo(static_cast<int32_t>(range.lo));
  out.set_hi(static_cast<int32_t>(range.hi));
  for (const int64_t read : reads) out.add_read_versions(read);
  return out;
}

wire::RecordPart part(int64_t first, const std::vector<wire::Applied>& entries) {
  wire::RecordPart out;
  out.set_first(first);
  for (const wire::Applied& entry : entries) *out.add_applied() = entry;
  return out;
}

// ---- a server's log ----

TEST(UpdateLog, PartIsRepeatedUntilItIsConfirmed) {
  UpdateLog log;
  EXPECT_FALSE(log.due(0));
  log.add(applied(0, 0, {0, 1}, {0}));
  log.add(applied(1, 0, {1, 2}, {0}));
  const auto first = log.due(1000);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->first(), 0);
  EXPECT_EQ(first->applied_size(), 2);
  log.add(applied(0, 1, {0, 1}, {1}));
  EXPECT_FALSE(log.due(1000 + UpdateLog::kRepeatMs - 1)) << "the answer may be in flight";
  const auto again = log.due(1000 + UpdateLog::kRepeatMs);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->first(), 0);
  EXPECT_EQ(again->applied_size(), 3);
  log.confirm(2);
  EXPECT_EQ(log.confirmed(), 2);
  EXPECT_EQ(log.size(), 3);
  EXPECT_FALSE(log.due(1000 + UpdateLog::kRepeatMs)) << "a small part waits for more entries";
  const auto rest = log.due(1000 + UpdateLog::kRepeatMs + UpdateLog::kEveryMs);
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->first(), 2);
  EXPECT_EQ(rest->applied(0).step(), 1);
  log.confirm(1);
  EXPECT_EQ(log.confirmed(), 2) << "a late answer";
  log.confirm(99);
  EXPECT_EQ(log.confirmed(), 3) << "no more entries than the log has";
  EXPECT_FALSE(log.part());
}

TEST(UpdateLog, PartsAreBounded) {
  UpdateLog log;
  constexpr int kEntries = 10'000;
  for (int i = 0; i < kEntries; ++i) log.add(applied(0, i, {0, 1}, {i, i}));
  EXPECT_EQ(log.part()->applied_size(), static_cast<int>(UpdateLog::kMaxEntries));
  EXPECT_TRUE(log.due(1));
  log.confirm(static_cast<int64_t>(UpdateLog::kMaxEntries));
  EXPECT_TRUE(log.due(1)) << "a full part does not wait";
  int64_t next = log.confirmed();
  for (const wire::RecordPart& rest : log.take_rest()) {
    EXPECT_EQ(rest.first(), next);
    next += rest.applied_size();
  }
  EXPECT_EQ(next, kEntries);
  EXPECT_FALSE(log.part());

  UpdateLog wide;
  std::vector<int64_t> reads(20'000, INT64_MAX);
  for (int i = 0; i < 9; ++i) wide.add(applied(0, i, {0, 1}, reads));
  EXPECT_LE(wide.part()->ByteSizeLong(), UpdateLog::kMaxBytes + 64);
  EXPECT_GE(wide.part()->applied_size(), 1);
}

TEST(ServerLogs, PushesOfAGroupHaveVersionsOfEachStage) {
  ServerLogs logs(2, 4, 2);
  EXPECT_FALSE(taken(logs.take(0, part(0, {applied(0, 0, {0, 4}, {0, 0})}))));
  EXPECT_TRUE(taken(logs.take(0, part(0, {applied(1, 0, {0, 4}, {0, 0, 0, -1})}))));
  EXPECT_TRUE(taken(logs.take(
      1, part(0, {applied(1, 0, {0, 4}, {0, 0, 0, -1}), applied(1, 1, {0, 4}, {0, 0, 1, -1})}))));
  EXPECT_TRUE(taken(logs.take(0, part(1, {applied(1, 1, {0, 4}, {0, 0, 1, -1})}))));
  const VersionRules rules{.servers = 2, .with_slices = 2};
  RunRecord record;
  record.servers = 2;
  record.stages = 2;
  EXPECT_EQ(merge_logs(logs, rules, record), 0);
  ASSERT_EQ(record.pushes.size(), 2U);
  std::vector<int> servers;
  for (const RecordedUpdate& update : record.updates) servers.push_back(update.server);
  EXPECT_EQ(servers[0], 0) << "stage 1 of the second push has read its update";
  EXPECT_EQ(check_order(record, rules), "");
  const std::vector<VersionRules::Read> reads = rules.reads_of(record.pushes[1]);
  ASSERT_EQ(reads.size(), 3U) << "stage 1 has read nothing of server 1";
  EXPECT_EQ(reads[2].version, 1);
  EXPECT_EQ(reads[2].stage, 1U);
}

TEST(ServerLogs, TakesEachEntryOnceDespiteLossAndRepeats) {
  std::mt19937 random(4);
  UpdateLog log;
  ServerLogs logs(2, 4);
  int made = 0;
  for (int64_t now = 0; logs.have(1) < 500; now += 20) {
    for (; made < 500 && random() % 3 != 0; ++made) {
      log.add(applied(made % 3, made, {0, 2}, {made, made}));
    }
    const auto due = log.due(now);
    if (!due || random() % 4 == 0) continue;
    for (unsigned times = 1 + random() % 2; times > 0; --times) {
      EXPECT_EQ(reason_of(logs.take(1, *due)), "");
      if (random() % 4 != 0) log.confirm(logs.have(1));
    }
  }
  for (int i = 0; i < 500; ++i) EXPECT_EQ(logs.of(1)[static_cast<size_t>(i)].push.step, i);
  EXPECT_EQ(logs.have(0), 0);
}

TEST(ServerLogs, RefusesImpossibleEntries) {
  ServerLogs logs(2, 4);
  const wire::Applied good = applied(0, 3, {0, 2}, {5, 6});
  EXPECT_EQ(reason_of(logs.take(0, part(1, {good}))), "") << "the entries before it are missing";
  EXPECT_EQ(logs.have(0), 0);
  EXPECT_EQ(reason_of(logs.take(0, part(-1, {good}))), "bad-record-part");
  EXPECT_EQ(reason_of(logs.take(2, part(0, {good}))), "wrong-role");
  EXPECT_EQ(reason_of(logs.take(-1, part(0, {good}))), "wrong-role");
  for (const wire::Applied& bad : {applied(0, -1, {0, 2}, {5, 6}), applied(0, 3, {-1, 2}, {5, 6}),
                                   applied(0, 3, {2, 2}, {5, 6}), applied(0, 3, {0, 5}, {5, 6}),
                                   applied(0, 3, {0, 2}, {5}), applied(0, 3, {0, 2}, {5, 6, 7})}) {
    EXPECT_EQ(reason_of(logs.take(0, part(0, {good, bad}))), "bad-push") << bad.ShortDebugString();
    EXPECT_EQ(logs.have(0), 0) << "the entries before the bad one are not taken either";
  }
  EXPECT_EQ(reason_of(logs.take(
                0, part(0, std::vector<wire::Applied>(UpdateLog::kMaxEntries + 1, good)))),
            "bad-record-part");
}

// ---- one order ----

RunRecord merged(const ServerLogs& logs, const VersionRules& rules, int64_t* left) {
  RunRecord out;
  out.servers = logs.servers();
  *left = merge_logs(logs, rules, out);
  return out;
}

std::vector<std::pair<int, int64_t>> order_of(const RunRecord& record) {
  std::vector<std::pair<int, int64_t>> out;
  for (const RecordedUpdate& update : record.updates) {
    out.emplace_back(update.server, record.pushes[update.push].step);
  }
  return out;
}

TEST(MergeLogs, PushComesAfterAllUpdatesThatItRead) {
  // Server 1 has made two updates before the push of step 9 is computed, server 0 none.
  ServerLogs logs(2, 4);
  const auto early = applied(0, 1, {0, 2}, {0, 0});
  const auto more = applied(1, 2, {2, 4}, {0, 1});
  const auto late = applied(2, 9, {0, 2}, {0, 2});
  logs.take(0, part(0, {late, early, more}));
  logs.take(1, part(0, {early, more, late}));
  int64_t left = 0;
  const RunRecord record = merged(logs, {false, 0, 2, 2}, &left);
  EXPECT_EQ(left, 0);
  EXPECT_EQ(record.pushes.size(), 3U) << "one push, however many servers apply it";
  EXPECT_EQ(order_of(record),
            (std::vector<std::pair<int, int64_t>>{{1, 1}, {1, 2}, {0, 9}, {0, 1}, {0, 2}, {1, 9}}));
  EXPECT_EQ(check_order(record, {false, 0, 2, 2}), "");
}

TEST(MergeLogs, PushesThatReadALostUpdateAreLeftOut) {
  ServerLogs logs(2, 4);
  logs.take(0, part(0, {applied(0, 0, {0, 2}, {0, 0}), applied(1, 0, {2, 4}, {1, 1}),
                        applied(0, 1, {0, 2}, {1, 0})}));
  int64_t left = 0;
  const RunRecord record = merged(logs, {false, 0, 2, 2}, &left);
  EXPECT_EQ(left, 2) << "server 1 has reported nothing";
  EXPECT_EQ(record.updates.size(), 1U);
  EXPECT_EQ(check_order(record, {false, 0, 2, 2}), "");
  // A server without slices has no versions to read.
  EXPECT_EQ(merged(logs, {false, 0, 2, 1}, &left).updates.size(), 3U);
  EXPECT_EQ(left, 0);
}

TEST(MergeLogs, VersionsStartAtTheStartOfTheRun) {
  ServerLogs logs(1, 4);
  logs.take(0, part(0, {applied(0, 3, {0, 2}, {7}), applied(0, 4, {0, 2}, {8})}));
  int64_t left = 0;
  const RunRecord record = merged(logs, {false, 7, 1, 1}, &left);
  EXPECT_EQ(left, 0);
  EXPECT_NE(check_order(record, {false, 6, 1, 1}), "");
  EXPECT_NE(check_order(record, {false, 8, 1, 1}), "")
      << "no push reads a version before the start";
}

TEST(MergeLogs, BackupStepIsOneVersion) {
  ServerLogs logs(2, 4);
  const auto a0 = applied(0, 5, {0, 2}, {5, 5});
  const auto b0 = applied(1, 5, {2, 4}, {5, 5});
  const auto a1 = applied(0, 6, {0, 2}, {6, 6});
  for (const int server : {0, 1}) logs.take(server, part(0, {a0, b0, a1}));
  int64_t left = 0;
  const RunRecord record = merged(logs, {true, 5, 2, 2}, &left);
  EXPECT_EQ(left, 0);
  EXPECT_EQ(order_of(record),
            (std::vector<std::pair<int, int64_t>>{{0, 5}, {0, 5}, {1, 5}, {1, 5}, {0, 6}, {1, 6}}));
  EXPECT_EQ(check_order(record, {true, 5, 2, 2}), "");
}

TEST(MergeLogs, MarkedPushesAreOneUpdateAndOneVersion) {
  ServerLogs logs(1, 4);
  auto first = applied(0, 0, {0, 2}, {0});
  const auto second = applied(1, 0, {2, 4}, {0});
  auto third = applied(0, 1, {0, 2}, {1});
  const auto fourth = applied(1, 1, {2, 4}, {1});
  first.set_more(true);
  third.set_more(true);
  logs.take(0, part(0, {first, second, third, fourth}));
  int64_t left = 0;
  RunRecord record = merged(logs, {false, 0, 1, 1}, &left);
  EXPECT_EQ(left, 0);
  EXPECT_EQ(check_order(record, {false, 0, 1, 1}), "");
  EXPECT_EQ(ends_of_updates(record, {false, 0, 1, 1}),
            (std::vector<bool>{false, true, false, true}));
  record.updates[0].more = false;  // now version 1 exists before the second push
  record.pushes[1].reads = {2};
  EXPECT_NE(check_order(record, {false, 0, 1, 1}), "");
}

TEST(MergeLogs, UpdateWithoutItsLastPushesIsLeftOut) {
  ServerLogs logs(1, 4);
  auto first = applied(0, 1, {0, 2}, {1});
  first.set_more(true);
  logs.take(0, part(0, {applied(0, 0, {0, 2}, {0}), first}));
  int64_t left = 0;
  const RunRecord record = merged(logs, {false, 0, 1, 1}, &left);
  EXPECT_EQ(left, 1);
  EXPECT_EQ(record.updates.size(), 1U);
}

TEST(EndsOfUpdates, OldRecordsOfBackupHaveNoMarks) {
  RunRecord record;
  record.pushes = {{0, 5, {0, 2}, {5}}, {1, 5, {2, 4}, {5}}, {0, 6, {0, 2}, {6}}};
  record.updates = {{0, 0}, {0, 1}, {0, 2}};
  EXPECT_EQ(ends_of_updates(record, {true, 5, 1, 1}), (std::vector<bool>{false, true, true}));
  EXPECT_EQ(ends_of_updates(record, {false, 5, 1, 1}), (std::vector<bool>{true, true, true}));
}

// Random possible runs: pushes read existing versions and arrive at the servers in any order.
TEST(MergeLogs, RandomRunsKeepTheOrderOfEachServer) {
  std::mt19937 random(8);
  for (int turn = 0; turn < 300; ++turn) {
    const int servers = 1 + static_cast<int>(random() % 4);
    ServerLogs logs(servers, 4);
    struct UnderWay {
      wire::Applied push;
      std::vector<int> to;
    };
    std::vector<UnderWay> open;
    for (int64_t step = 0; step < 60 || !open.empty();) {
      if (step < 60 && random() % 3 != 0 && open.size() < 5) {
        std::vector<int64_t> reads;
        UnderWay push;
        for (int k = 0; k < servers; ++k) {
          reads.push_back(logs.have(k) == 0 ? 0
                                            : static_cast<int64_t>(random()) % (logs.have(k) + 1));
          push.to.push_back(k);
        }
        push.push = applied(static_cast<int>(random() % 3), step++, {0, 2}, reads);
        open.push_back(push);
      } else if (!open.empty()) {
        UnderWay& push = open[random() % open.size()];
        const size_t at = random() % push.to.size();
        const int server = push.to[at];
        push.to.erase(push.to.begin() + static_cast<int64_t>(at));
        EXPECT_FALSE(logs.take(server, part(logs.have(server), {push.push})));
        std::erase_if(open, [](const UnderWay& u) { return u.to.empty(); });
      }
    }
    int64_t left = 0;
    const VersionRules rules{false, 0, servers, servers};
    const RunRecord record = merged(logs, rules, &left);
    ASSERT_EQ(left, 0);
    ASSERT_EQ(check_order(record, rules), "");
    for (int k = 0; k < servers; ++k) {
      int64_t i = 0;
      for (const RecordedUpdate& update : record.updates) {
        if (update.server != k) continue;
        ASSERT_EQ(record.pushes[update.push], logs.of(k)[static_cast<size_t>(i++)].push);
      }
      ASSERT_EQ(i, logs.have(k));
    }
  }
}

}  // namespace
}  // namespace pushpull

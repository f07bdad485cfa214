#include "ps/run/stall_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "tests/ps/cluster_parts.h"

namespace pushpull {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kSecond = 1000;

// Two workers, 4 micro-batches a step, 10 steps. The test plays heartbeats and commits.
class StallWatchTest : public testing::Test {
 protected:
  void make(const std::string& keys) {
    options_.job = job_of(keys);
    options_.workers = 2;
    members_.add({.role = wire::ROLE_SERVER, .rank = 0, .incarnation = 1, .host = "head"});
    int rank = 0;
    for (const uint64_t who : {kAnna, kBert}) {
      members_.add({.role = wire::ROLE_WORKER,
                    .rank = rank++,
                    .incarnation = who,
                    .host = "node",
                    .pid = static_cast<int64_t>(1000 + who),
                    .peer = std::to_string(who),
                    .declared = true});
    }
    Declaration declaration;
    declaration.table = table_of(3000);
    declaration.train_samples = 64;
    declaration.test_samples = 8;
    run_.emplace(options_, declaration, Start{}, heard_, members_, out_);
    write_snapshots(*run_);
    watch_.emplace(options_.job, members_);
    watch_->on_tick(0, *run_);
  }
  void report(uint64_t who, int64_t progress, const std::string& waits_for = "") {
    wire::Stats& stats = members_.find(who)->stats;
    stats.set_progress(progress);
    stats.set_waits_for(waits_for);
  }
  void commit(uint64_t who, int64_t step) {
    run_->on_commit({who, step, who == kAnna ? Range{0, 2} : Range{2, 4}, {}, true});
  }
  // Ticks at this time and returns the line for users, or "".
  std::string notice(int64_t now_ms) {
    watch_->on_tick(now_ms, *run_);
    return watch_->take_notice(now_ms, *run_).value_or("");
  }

  CoordinatorOptions options_;
  Membership members_{10};
  Actions out_;
  StoringListener heard_;
  std::optional<TrainingRun> run_;
  std::optional<StallWatch> watch_;
};

TEST_F(StallWatchTest, NamesTheWorkerThatDelaysAStepAfterTenSecondsAndEveryThirty) {
  make("");
  commit(kAnna, 0);
  report(kAnna, 2, "weights of step 1 of server 0");
  EXPECT_EQ(notice(10 * kSecond), "");
  EXPECT_EQ(
      notice(10 * kSecond + 1),
      "step 0 has not ended for 10.0 s: worker 1 (node, pid 1102) has computed nothing for 10.0 s");
  EXPECT_EQ(notice(40 * kSecond), "");
  EXPECT_THAT(notice(41 * kSecond), HasSubstr("has not ended for 41.0 s"));
}

TEST_F(StallWatchTest, SlowStepsGetThreeTimesTheirMedian) {
  make("");
  for (int64_t step = 0; step < 3; ++step) {
    commit(kAnna, step);
    commit(kBert, step);
    EXPECT_EQ(notice((step + 1) * 8 * kSecond), "");
  }
  EXPECT_EQ(notice(48 * kSecond), "");
  EXPECT_THAT(notice(48 * kSecond + 1), HasSubstr("step 3 has not ended for 24.0 s"));
}

TEST_F(StallWatchTest, WhenAllWorkersWaitItNamesTheCause) {
  make("");
  for (const uint64_t who : {kAnna, kBert}) report(who, 0, "weights of step 0 of server 1");
  EXPECT_THAT(
      notice(11 * kSecond),
      HasSubstr("worker 0 (node, pid 1101) waits for weights of step 0 of server 1; worker 1"));
}

TEST_F(StallWatchTest, RunningEvaluationIsNoStall) {
  make("eval-every = 1\n");
  commit(kAnna, 0);
  commit(kBert, 0);
  for (int64_t s = 0; s < 60; s += 5) {
    report(kAnna, s + 1);
    EXPECT_EQ(notice(s * kSecond), "") << s;
  }
  EXPECT_THAT(notice(70 * kSecond), HasSubstr("the evaluation at step 1 has not ended for 15.0 s"));
}

TEST_F(StallWatchTest, WorkerThatComputesNothingIsStuckAfterProgressTimeout) {
  make("progress-timeout = 25\n");
  report(kBert, 1);
  watch_->on_tick(5 * kSecond, *run_);
  report(kAnna, 1);
  watch_->on_tick(20 * kSecond, *run_);
  watch_->on_tick(30 * kSecond, *run_);
  EXPECT_TRUE(watch_->stuck(30 * kSecond).empty());
  const auto stuck = watch_->stuck(30 * kSecond + 1);
  ASSERT_EQ(stuck.size(), 1U);
  EXPECT_EQ(stuck.front().incarnation, kBert);
  EXPECT_EQ(stuck.front().reason,
            "it sends heartbeats, but has computed nothing for 25.0 s (progress-timeout = 25.0)");
}

TEST_F(StallWatchTest, WaitingWorkerIsNotStuck) {
  make("progress-timeout = 25\n");
  for (const uint64_t who : {kAnna, kBert}) report(who, 0, "weights of step 0 of server 1");
  watch_->on_tick(100 * kSecond, *run_);
  EXPECT_TRUE(watch_->stuck(100 * kSecond).empty());
}

TEST_F(StallWatchTest, WorkerThatDrawsNoLeaseWithoutWaitingIsStuck) {
  make("strategy = async\nprogress-timeout = 25\n");
  report(kAnna, 0, "a lease of server 0");
  watch_->on_tick(26 * kSecond, *run_);
  EXPECT_EQ(watch_->overdue(26 * kSecond, *run_), "") << "the other worker may continue";
  ASSERT_EQ(watch_->stuck(26 * kSecond).size(), 1U);
  EXPECT_EQ(watch_->stuck(26 * kSecond).front().incarnation, kBert);
}

TEST_F(StallWatchTest, LossOfAWorkerRestartsTheWait) {
  make("strategy = async\nprogress-timeout = 25\n");
  report(kAnna, 0, "a lease of server 0");
  watch_->on_tick(26 * kSecond, *run_);
  members_.remove(kBert);
  watch_->on_tick(26 * kSecond, *run_);
  EXPECT_EQ(watch_->overdue(26 * kSecond, *run_), "");
}

TEST_F(StallWatchTest, ZeroNeverEndsTheJobButStillNames) {
  make("progress-timeout = 0\n");
  EXPECT_THAT(notice(10'000 * kSecond), HasSubstr("has computed nothing for 10000.0 s"));
  EXPECT_TRUE(watch_->stuck(10'000 * kSecond).empty());
  EXPECT_EQ(watch_->overdue(10'000 * kSecond, *run_), "");
}

TEST_F(StallWatchTest, JobInWhichAllWaitEnds) {
  make("progress-timeout = 25\n");
  for (const uint64_t who : {kAnna, kBert}) report(who, 0, "weights of step 0 of server 1");
  watch_->on_tick(25 * kSecond, *run_);
  EXPECT_EQ(watch_->overdue(25 * kSecond, *run_), "");
  EXPECT_THAT(watch_->overdue(25 * kSecond + 1, *run_),
              HasSubstr("[job] nothing has been computed for 25.0 s (progress-timeout = 25.0), at "
                        "step 0: worker 0 "
                        "(node, pid 1101) waits for weights of step 0 of server 1"));
  commit(kAnna, 0);
  watch_->on_tick(26 * kSecond, *run_);
  EXPECT_EQ(watch_->overdue(26 * kSecond, *run_), "");
}

TEST_F(StallWatchTest, WaitForAWorkerOrACheckpointHasItsOwnDeadline) {
  make("progress-timeout = 25\non-worker-loss = wait\ncheckpoint-every = 2\n");
  for (const uint64_t who : {kAnna, kBert}) report(who, 0, "weights of step 0 of server 1");
  const MemberInfo bert = *members_.find(kBert);
  members_.remove(kBert);
  run_->lose_worker(0, bert);
  watch_->on_tick(60 * kSecond, *run_);
  EXPECT_EQ(watch_->overdue(60 * kSecond, *run_), "") << "replacement-timeout applies";
  run_->assign_work();
  members_.add(bert);
  run_->assign_work();
  run_->on_barrier_open(2);
  run_->take_snapshot_request();
  run_->snapshot_gathered({.step = 2});
  ASSERT_TRUE(run_->take_task());
  watch_->on_tick(90 * kSecond, *run_);
  EXPECT_EQ(watch_->overdue(90 * kSecond, *run_), "") << "the disk may be slow";
  run_->snapshot_written(true);
  watch_->on_tick(116 * kSecond, *run_);
  EXPECT_THAT(watch_->overdue(116 * kSecond, *run_), Not(testing::IsEmpty()));
}

TEST_F(StallWatchTest, GatheredWeightsAreProgress) {
  make("progress-timeout = 25\n");
  for (const uint64_t who : {kAnna, kBert}) report(who, 0, "the end of the job");
  for (int64_t s = 0; s < 100; s += 20) {
    run_->note_transferred(s);
    watch_->on_tick(s * kSecond, *run_);
    EXPECT_EQ(watch_->overdue(s * kSecond, *run_), "");
  }
  EXPECT_NE(watch_->overdue(106 * kSecond, *run_), "");
}

TEST_F(StallWatchTest, HoldersOfLeasesAreNamed) {
  make("strategy = async\n");
  run_->leases(kBert);
  EXPECT_THAT(notice(11 * kSecond), HasSubstr("step 0 has not ended for 11.0 s: worker 1 (node"));
}

}  // namespace
}  // namespace pushpull

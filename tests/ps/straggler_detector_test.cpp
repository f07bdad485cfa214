#include "ps/report/straggler_detector.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "common/job/job.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {
namespace {

constexpr uint64_t kWorker = 7;

// A worker with reports that the test makes up.
class UsageRatesTest : public ::testing::Test {
 protected:
  UsageRatesTest() {
    shown_[kWorker].incarnation = kWorker;
    shown_[kWorker].peer = "peer";
  }
  void report(int64_t at_ms, double cpu_seconds) {
    shown_[kWorker].last_heard_ms = at_ms;
    shown_[kWorker].stats.set_cpu_seconds(cpu_seconds);
  }
  std::optional<double> tick(int64_t now_ms) {
    use_.on_tick(now_ms, shown_);
    return use_.cores_used(kWorker);
  }

  std::map<uint64_t, MemberInfo> shown_;
  UsageRates use_;
};

TEST_F(UsageRatesTest, IsUnknownBeforeTheSecondReport) {
  EXPECT_EQ(use_.cores_used(kWorker), std::nullopt);
  report(1'000, 5.0);
  EXPECT_EQ(tick(1'010), std::nullopt);
  EXPECT_EQ(tick(1'900), std::nullopt) << "the same report";
}

TEST_F(UsageRatesTest, IsTheCpuTimeBetweenTheReports) {
  report(1'000, 5.0);
  tick(1'500);
  report(2'000, 6.5);
  EXPECT_EQ(tick(2'900), 1.5) << "when it is looked at does not matter";
}

TEST_F(UsageRatesTest, TheNetworkHasARateEachWay) {
  report(1'000, 0.0);
  tick(1'000);
  EXPECT_EQ(use_.bytes_sent_per_second(kWorker), std::nullopt);
  shown_[kWorker].stats.set_bytes_sent(3'000);
  shown_[kWorker].stats.set_bytes_received(500);
  report(3'000, 0.0);
  tick(3'000);
  EXPECT_EQ(use_.bytes_sent_per_second(kWorker), 1'500.0);
  EXPECT_EQ(use_.bytes_received_per_second(kWorker), 250.0);
}

TEST_F(UsageRatesTest, CoversTheLastEightSeconds) {
  report(0, 0.0);
  tick(0);
  for (int64_t s = 1; s <= 10; ++s) {
    report(s * 1'000, 2.0 * static_cast<double>(s));
    EXPECT_EQ(tick(s * 1'000), 2.0);
  }
  for (int64_t s = 11; s <= 20; ++s) {
    report(s * 1'000, 20.0);
    tick(s * 1'000);
  }
  EXPECT_EQ(use_.cores_used(kWorker), 0.0) << "it has been idle for longer";
}

TEST_F(UsageRatesTest, ASilentMemberKeepsItsLastUse) {
  report(1'000, 1.0);
  tick(1'000);
  report(2'000, 2.0);
  tick(2'000);
  EXPECT_EQ(tick(60'000), 1.0);
}

TEST_F(UsageRatesTest, TheServerOfThisProcessReportsAtEachLook) {
  shown_[kWorker].peer = "";
  shown_[kWorker].stats.set_cpu_seconds(1.0);
  tick(1'000);
  shown_[kWorker].stats.set_cpu_seconds(1.5);
  EXPECT_EQ(tick(2'000), 0.5);
}

TEST_F(UsageRatesTest, CpuTimeThatGoesBackIsNoUse) {
  report(1'000, 5.0);
  tick(1'000);
  report(2'000, 1.0);
  EXPECT_EQ(tick(2'000), 0.0);
}

TEST_F(UsageRatesTest, ForgetsMembersThatAreGone) {
  report(1'000, 1.0);
  tick(1'000);
  report(2'000, 2.0);
  tick(2'000);
  shown_.clear();
  EXPECT_EQ(tick(3'000), std::nullopt);
}

}  // namespace

namespace {

constexpr uint64_t kCarla = 103;

// The test plays the heartbeats and commits of the workers. A step takes a second.
class PaceTest : public testing::Test {
 protected:
  struct Second {
    double busy = 0.0;
    double wait = 0.0;
    int64_t tasks = 1;
    std::string waits_for = {};
  };

  PaceTest() {
    int rank = 0;
    for (const uint64_t who : {kAnna, kBert, kCarla}) {
      members_.add({.role = wire::ROLE_WORKER, .rank = rank++, .incarnation = who});
    }
  }
  void seconds(int count, const std::map<uint64_t, Second>& each, bool moves = true) {
    for (int i = 0; i < count; ++i) {
      now_ += 1000;
      for (const auto& [who, second] : each) {
        wire::Stats& stats = members_.find(who)->stats;
        stats.set_compute_seconds(stats.compute_seconds() + second.busy);
        stats.set_wait_seconds(stats.wait_seconds() + second.wait);
        stats.set_computed(stats.computed() + second.tasks);
        stats.set_waits_for(second.waits_for);
      }
      if (moves) progress_.add({kAnna, step_++, {0, 4}, {1, 1, 1, 1}, true}, 0);
      detector_.on_tick(now_, members_, progress_);
    }
  }

  Membership members_{5.0};
  const Barriers barriers_;
  CommittedWork progress_{job_of(), 3, barriers_};
  StragglerDetector detector_;
  int64_t now_ = 1'000'000;
  int64_t step_ = 0;
};

TEST_F(PaceTest, SlowWorkerThatTheOthersWaitForIsAStraggler) {
  seconds(4, {{kAnna, {0.9, 0.1}}, {kBert, {0.3, 0.7}}, {kCarla, {0.3, 0.7}}});
  EXPECT_TRUE(detector_.straggles(kAnna));
  EXPECT_FALSE(detector_.straggles(kBert));
  EXPECT_FALSE(detector_.straggles(kCarla));
}

TEST_F(PaceTest, EqualWorkersThatWaitForTheServerAreNoStragglers) {
  seconds(4, {{kAnna, {0.35, 0.65}}, {kBert, {0.3, 0.7}}, {kCarla, {0.32, 0.68}}});
  for (const uint64_t who : {kAnna, kBert, kCarla}) EXPECT_FALSE(detector_.straggles(who));
}

// Under async each worker waits only for the servers.
TEST_F(PaceTest, SlowWorkerWithoutWaitingPeersIsNoStraggler) {
  seconds(4, {{kAnna, {0.9, 0.1, 1}}, {kBert, {0.6, 0.4, 4}}, {kCarla, {0.6, 0.4, 4}}});
  for (const uint64_t who : {kAnna, kBert, kCarla}) EXPECT_FALSE(detector_.straggles(who));
}

TEST_F(PaceTest, RecoveredWorkerIsNoStragglerAfterSomeSeconds) {
  seconds(4, {{kAnna, {0.9, 0.1}}, {kBert, {0.3, 0.7}}, {kCarla, {0.3, 0.7}}});
  seconds(12, {{kAnna, {0.3, 0.1}}, {kBert, {0.3, 0.1}}, {kCarla, {0.3, 0.1}}});
  EXPECT_FALSE(detector_.straggles(kAnna));
}

TEST_F(PaceTest, WorkerThatComputesWhileAStepStallsIsAStraggler) {
  seconds(3, {{kAnna, {0.5, 0.5}}, {kBert, {0.5, 0.5}}, {kCarla, {0.5, 0.5}}});
  const Second waits{0.0, 0.0, 0, "weights"};
  seconds(2, {{kAnna, {0.0, 0.0, 0}}, {kBert, waits}, {kCarla, waits}}, false);
  EXPECT_FALSE(detector_.straggles(kAnna)) << "a step takes a second";
  seconds(2, {{kAnna, {0.0, 0.0, 0}}, {kBert, waits}, {kCarla, waits}}, false);
  EXPECT_TRUE(detector_.straggles(kAnna));
  EXPECT_FALSE(detector_.straggles(kBert));
  seconds(1, {{kAnna, waits}, {kBert, waits}, {kCarla, waits}}, false);
  EXPECT_FALSE(detector_.straggles(kAnna)) << "all wait for a server or the disk";
}

TEST_F(PaceTest, CountsSamplesOfCommittedPushes) {
  EXPECT_EQ(detector_.samples_per_second(kAnna), 0.0);
  seconds(5, {{kAnna, {0.5, 0.5}}, {kBert, {0.5, 0.5}}});
  EXPECT_DOUBLE_EQ(detector_.samples_per_second(kAnna), 8.0);
  EXPECT_EQ(detector_.samples_per_second(kBert), 0.0);
  seconds(20, {{kAnna, {0.0, 1.0, 0}}}, false);
  EXPECT_EQ(detector_.samples_per_second(kAnna), 0.0) << "only the last seconds count";
}

TEST_F(PaceTest, RemovedMembersAreForgotten) {
  seconds(4, {{kAnna, {0.9, 0.1}}, {kBert, {0.3, 0.7}}, {kCarla, {0.3, 0.7}}});
  members_.remove(kAnna);
  seconds(1, {{kBert, {0.3, 0.1}}});
  EXPECT_FALSE(detector_.straggles(kAnna));
  EXPECT_EQ(detector_.samples_per_second(kAnna), 0.0);
}

}  // namespace

}  // namespace pushpull

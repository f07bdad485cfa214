#include <gtest/gtest.h>

#include "ps/status/pace.h"

namespace pushpull {
namespace {

constexpr uint64_t kWorker = 7;

// A worker with reports that the test makes up.
class CpuPaceTest : public ::testing::Test {
 protected:
  CpuPaceTest() {
    shown_[kWorker].incarnation = kWorker;
    shown_[kWorker].peer = "peer";
  }
  void report(int64_t at_ms, double cpu_seconds) {
    shown_[kWorker].last_heard_ms = at_ms;
    shown_[kWorker].stats.set_cpu_seconds(cpu_seconds);
  }
  std::optional<double> tick(int64_t now_ms) {
    pace_.on_tick(now_ms, shown_);
    return pace_.cores_used(kWorker);
  }

  std::map<uint64_t, MemberInfo> shown_;
  CpuPace pace_;
};

TEST_F(CpuPaceTest, IsUnknownBeforeTheSecondReport) {
  EXPECT_EQ(pace_.cores_used(kWorker), std::nullopt);
  report(1'000, 5.0);
  EXPECT_EQ(tick(1'010), std::nullopt);
  EXPECT_EQ(tick(1'900), std::nullopt) << "the same report";
}

TEST_F(CpuPaceTest, IsTheCpuTimeBetweenTheReports) {
  report(1'000, 5.0);
  tick(1'500);
  report(2'000, 6.5);
  EXPECT_EQ(tick(2'900), 1.5) << "when it is looked at does not matter";
}

TEST_F(CpuPaceTest, CoversTheLastEightSeconds) {
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
  EXPECT_EQ(pace_.cores_used(kWorker), 0.0) << "it has been idle for longer";
}

TEST_F(CpuPaceTest, ASilentMemberKeepsItsLastPace) {
  report(1'000, 1.0);
  tick(1'000);
  report(2'000, 2.0);
  tick(2'000);
  EXPECT_EQ(tick(60'000), 1.0);
}

TEST_F(CpuPaceTest, TheServerOfThisProcessReportsAtEachLook) {
  shown_[kWorker].peer = "";
  shown_[kWorker].stats.set_cpu_seconds(1.0);
  tick(1'000);
  shown_[kWorker].stats.set_cpu_seconds(1.5);
  EXPECT_EQ(tick(2'000), 0.5);
}

TEST_F(CpuPaceTest, CpuTimeThatGoesBackIsNoPace) {
  report(1'000, 5.0);
  tick(1'000);
  report(2'000, 1.0);
  EXPECT_EQ(tick(2'000), 0.0);
}

TEST_F(CpuPaceTest, ForgetsMembersThatAreGone) {
  report(1'000, 1.0);
  tick(1'000);
  report(2'000, 2.0);
  tick(2'000);
  shown_.clear();
  EXPECT_EQ(tick(3'000), std::nullopt);
}

}  // namespace
}  // namespace pushpull

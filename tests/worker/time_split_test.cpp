#include "worker/member/time_split.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

class ActivityTest : public testing::Test {
 protected:
  wire::Stats stats() {
    wire::Stats out;
    activity_.put(&out);
    return out;
  }
  void wait(const std::string& what) {
    activity_.wait([&] {
      ++asked_;
      return what;
    });
  }

  int64_t now_ms_ = 5000;
  int asked_ = 0;
  Activity activity_{[this] { return now_ms_; }};
};

TEST_F(ActivityTest, CountsComputedTasks) {
  EXPECT_EQ(stats().progress(), 0);
  activity_.add_computed(3);
  activity_.add_computed(1);
  EXPECT_EQ(stats().progress(), 4);
  EXPECT_EQ(stats().waits_for(), "");
}

TEST_F(ActivityTest, WaitIsReportedUntilItEnds) {
  wait("weights");
  EXPECT_EQ(stats().waits_for(), "weights");
  now_ms_ += 1900;
  wait("leases");
  now_ms_ += 1900;
  EXPECT_EQ(stats().waits_for(), "leases");
}

TEST_F(ActivityTest, WaitThatIsNotRenewedIsDropped) {
  wait("weights");
  now_ms_ += 2000;
  EXPECT_EQ(stats().waits_for(), "weights");
  now_ms_ += 1;
  EXPECT_EQ(stats().waits_for(), "");
}

TEST_F(ActivityTest, BusyWaitAsksForItsTextAFewTimesASecond) {
  for (int i = 0; i < 1000; ++i, ++now_ms_) wait("weights");
  EXPECT_EQ(asked_, 5);
}

}  // namespace

namespace {

TEST(TimeSplit, EachSecondCountsForTheTrainersPhase) {
  double now = 100.0;
  TimeSplit split([&now] { return now; });
  const auto spend = [&](TimeSplit::Phase phase, double seconds) {
    split.enter(phase);
    now += seconds;
  };
  now += 50.0;  // before the first task
  spend(TimeSplit::kCompute, 3.0);
  spend(TimeSplit::kPush, 0.5);
  spend(TimeSplit::kCompute, 1.0);
  spend(TimeSplit::kPush, 0.25);
  split.count_tasks(1);
  spend(TimeSplit::kWait, 2.0);
  spend(TimeSplit::kPull, 0.75);
  spend(TimeSplit::kOther, 10.0);  // an evaluation
  spend(TimeSplit::kCompute, 4.0);
  spend(TimeSplit::kCompute, 1.0);  // still computing
  split.enter(TimeSplit::kPush);
  const TimeTotals totals = split.totals();
  EXPECT_DOUBLE_EQ(totals.compute, 9.0);
  EXPECT_DOUBLE_EQ(totals.push, 0.75);
  EXPECT_DOUBLE_EQ(totals.wait, 2.0);
  EXPECT_DOUBLE_EQ(totals.pull, 0.75);
  EXPECT_EQ(totals.tasks, 1);
}

TEST(TimeSplit, WaitThatNeverEndsCountsForNoTask) {
  double now = 0.0;
  TimeSplit split([&now] { return now; });
  split.enter(TimeSplit::kWait);
  now = 1000.0;
  EXPECT_EQ(split.totals().wait, 0.0);
}

TEST(TimeTotals, AreWrittenToTheirFields) {
  wire::Stats stats;
  TimeTotals{1.0, 2.0, 3.0, 4.0, 5}.put(&stats);
  EXPECT_EQ(stats.compute_seconds(), 1.0);
  EXPECT_EQ(stats.push_seconds(), 2.0);
  EXPECT_EQ(stats.wait_seconds(), 3.0);
  EXPECT_EQ(stats.pull_seconds(), 4.0);
  EXPECT_EQ(stats.computed(), 5);
}

}  // namespace

}  // namespace pushpull

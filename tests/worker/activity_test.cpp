#include <gtest/gtest.h>

#include "worker/trace/time_split.h"

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
}  // namespace pushpull

// Tests PullWindows.
#include <gtest/gtest.h>

#include <climits>

#include "tests/worker/exchange_parts.h"
#include "worker/exchange/pull_pace.h"

namespace pushpull {
namespace {

constexpr int64_t kMax = int64_t{8} << 20;

TEST(PullWindows, ReportsEachReceivedQuarterOfTheWindow) {
  PullWindows windows(ConnectionMap(three_slices(), 1), 0, 4096);
  EXPECT_EQ(windows.open(0, 0, true, true), 4096);
  EXPECT_FALSE(windows.count(0, 0, 1023, false, 1));
  EXPECT_EQ(windows.count(0, 0, 1, false, 2), 1024);
  EXPECT_FALSE(windows.count(0, 0, 1000, false, 3)) << "1,024 bytes were reported";
  EXPECT_FALSE(windows.count(0, 0, 1000, true, 4)) << "the pull is complete";
  EXPECT_EQ(windows.received(0, 0), 3024);
}

TEST(PullWindows, NothingIsReportedWithoutALimit) {
  PullWindows windows(ConnectionMap(three_slices(), 1), 0, 4096);
  EXPECT_EQ(windows.open(0, 0, true, false), 0);
  EXPECT_FALSE(windows.count(0, 0, 1 << 20, false, 1));
}

TEST(PullWindows, RepeatedPullKeepsItsReceivedBytes) {
  PullWindows windows(ConnectionMap(three_slices(), 1), 0, 4096);
  windows.open(0, 0, true, true);
  windows.count(0, 0, 500, false, 1);
  windows.open(0, 0, false, true);
  EXPECT_EQ(windows.received(0, 0), 500);
  windows.open(0, 0, true, true);
  EXPECT_EQ(windows.received(0, 0), 0);
}

TEST(PullWindows, UnknownConnectionIsNotCounted) {
  PullWindows windows(ConnectionMap(three_slices(), 2), 0, 1);
  for (const int connection : {-1, 2, INT_MAX, INT_MIN}) {
    EXPECT_FALSE(windows.count(0, connection, 1 << 20, false, 1)) << connection;
  }
}

// 2 MiB arrive in a second: 50 ms of that rate are less than the smallest window.
TEST(PullWindows, SlowLinkHasASmallWindowAndItsBestRateFadesSlowly) {
  PullWindows windows(ConnectionMap(three_slices(), 1), 0, kMax);
  EXPECT_EQ(windows.open(0, 0, true, true), kMax) << "the rate is unknown";
  windows.count(0, 0, 1 << 20, false, 1000);
  windows.count(0, 0, 2 << 20, true, 2000);
  EXPECT_EQ(windows.open(0, 0, true, true), int64_t{2} << 20);
  windows.count(0, 0, 1 << 20, false, 3000);
  windows.count(0, 0, 100 << 20, true, 4000);  // 100 MiB / s
  EXPECT_EQ(windows.open(0, 0, true, true), int64_t{5} << 20);
  windows.count(0, 0, 1 << 20, false, 5000);
  windows.count(0, 0, 1 << 20, true, 6000);
  EXPECT_GT(windows.open(0, 0, true, true), int64_t{4} << 20) << "the best rate fades";
}

}  // namespace
}  // namespace pushpull

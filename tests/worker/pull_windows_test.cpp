// Windows of pulls, without messages.
#include <gtest/gtest.h>

#include <climits>

#include "tests/worker/exchange_parts.h"
#include "worker/exchange/pull_pace.h"

namespace pushpull {
namespace {

constexpr int64_t kMost = int64_t{8} << 20;

TEST(PullWindows, ReportsWhenAQuarterOfTheWindowHasCome) {
  PullWindows windows(ConnectionMap(three_slices(), 1), 0, 4096);
  EXPECT_EQ(windows.open(0, 0, true, true), 4096);
  EXPECT_FALSE(windows.count(0, 0, 1023, false, 1));
  EXPECT_EQ(windows.count(0, 0, 1, false, 2), 1024);
  EXPECT_FALSE(windows.count(0, 0, 1000, false, 3)) << "the server knows of the first 1024";
  EXPECT_FALSE(windows.count(0, 0, 1000, true, 4)) << "all is here";
  EXPECT_EQ(windows.received(0, 0), 3024);
}

TEST(PullWindows, WithoutALimitNothingIsReported) {
  PullWindows windows(ConnectionMap(three_slices(), 1), 0, 4096);
  EXPECT_EQ(windows.open(0, 0, true, false), 0);
  EXPECT_FALSE(windows.count(0, 0, 1 << 20, false, 1));
}

TEST(PullWindows, ARepeatedPullGoesOnWhereItWas) {
  PullWindows windows(ConnectionMap(three_slices(), 1), 0, 4096);
  windows.open(0, 0, true, true);
  windows.count(0, 0, 500, false, 1);
  windows.open(0, 0, false, true);
  EXPECT_EQ(windows.received(0, 0), 500);
  windows.open(0, 0, true, true);
  EXPECT_EQ(windows.received(0, 0), 0);
}

TEST(PullWindows, AConnectionThatDoesNotExistIsNotCounted) {
  PullWindows windows(ConnectionMap(three_slices(), 2), 0, 1);
  for (const int connection : {-1, 2, INT_MAX, INT_MIN}) {
    EXPECT_FALSE(windows.count(0, connection, 1 << 20, false, 1)) << connection;
  }
}

// 2 MiB in the second after the first message is 2 MiB / s: 50 ms of that are less than the least.
TEST(PullWindows, ASlowLinkHasASmallWindowAndForgetsSlowly) {
  PullWindows windows(ConnectionMap(three_slices(), 1), 0, kMost);
  EXPECT_EQ(windows.open(0, 0, true, true), kMost) << "nothing is known yet";
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

#include "common/shm/spinning.h"

#include <gtest/gtest.h>

#include <vector>

namespace pushpull {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

struct SpinningTest : testing::Test {
  // Waits once; returns whether it was allowed to spin.
  bool wait(Spinning& spinning, bool in_time) const {
    if (spinning.limit(now_) == Spinning::Clock::duration::zero()) return false;
    spinning.ended(in_time);
    return true;
  }
  Spinning::Clock::time_point now_{std::chrono::hours(1)};
};

TEST_F(SpinningTest, SleepNeverSpinsAndSpinAlwaysDoes) {
  Spinning sleep(Wait::kSleep);
  Spinning spin(Wait::kSpin);
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(wait(sleep, false));
    EXPECT_EQ(spin.limit(now_), Spinning::kSpinLimit);
    EXPECT_FALSE(spin.yielded(now_, milliseconds(4)));
    spin.ended(false);
  }
}

TEST_F(SpinningTest, AutoSpinsWhileMessagesComeInTime) {
  Spinning spinning(Wait::kAuto);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(spinning.limit(now_), Spinning::kAutoLimit);
    spinning.ended(true);
  }
}

TEST_F(SpinningTest, AutoSpinsMoreAndMoreSeldomIfThatIsOfNoUse) {
  Spinning spinning(Wait::kAuto);
  std::vector<int> spun;
  constexpr int kWaits = 1000;
  for (int i = 0; i < kWaits; ++i) {
    if (wait(spinning, false)) spun.push_back(i);
  }
  EXPECT_EQ(std::vector<int>(spun.begin(), spun.begin() + 5), (std::vector<int>{0, 2, 6, 14, 30}));
  EXPECT_EQ(spun.back() - spun.at(spun.size() - 2), 64) << "it does not give up";
  // one message in time, and it spins as before
  int waits = 0;
  while (!wait(spinning, true)) ++waits;
  EXPECT_LE(waits, 64);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(wait(spinning, true));
  EXPECT_EQ(spinning.waits(), kWaits + waits + 1 + 10);
  EXPECT_EQ(spinning.in_time(), 1 + 10);
}

TEST_F(SpinningTest, AutoLeavesACoreToAThreadThatComputes) {
  Spinning spinning(Wait::kAuto);
  EXPECT_TRUE(wait(spinning, true));
  EXPECT_FALSE(spinning.yielded(now_, microseconds(20))) << "a thread that spins, too";
  EXPECT_TRUE(wait(spinning, true));
  int64_t longest = 0;
  for (int i = 0; i < 20; ++i) {  // taken again and again: each pause is longer, up to a limit
    EXPECT_TRUE(spinning.yielded(now_, milliseconds(3)));
    const auto began = now_;
    while (spinning.limit(now_) == Spinning::Clock::duration::zero()) now_ += milliseconds(10);
    const auto paused = std::chrono::duration_cast<milliseconds>(now_ - began).count();
    EXPECT_GE(paused, longest);
    longest = paused;
    if (i == 0) {
      EXPECT_EQ(paused, 20);
    }
  }
  EXPECT_EQ(longest, 6400);
}

TEST_F(SpinningTest, ACoreThatWasFreeForLongIsLeftForAShortTimeAgain) {
  Spinning spinning(Wait::kAuto);
  for (int i = 0; i < 5; ++i) spinning.yielded(now_, milliseconds(3));
  now_ += milliseconds(6400);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(wait(spinning, true));
  spinning.yielded(now_, milliseconds(3));
  EXPECT_FALSE(wait(spinning, true));
  now_ += milliseconds(20);
  EXPECT_TRUE(wait(spinning, true));
}

}  // namespace
}  // namespace pushpull

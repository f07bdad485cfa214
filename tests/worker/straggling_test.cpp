#include <gtest/gtest.h>

#include <vector>

#include "worker/compute/compute.h"

namespace pushpull {
namespace {

// Only computing and sleeping advance this clock.
class StragglingTest : public testing::Test {
 protected:
  void compute(double seconds) {
    worker_.resume();
    now_ += seconds;
    worker_.lag();
  }
  double now_ = 0.0;
  double late_ = 0.0;  // seconds by which each sleep is too long
  std::vector<double> sleeps_;
  Straggling worker_{[this] { return now_; },
                     [this](double seconds) {
                       sleeps_.push_back(seconds);
                       now_ += seconds + late_;
                     }};
};

TEST_F(StragglingTest, WorkerOfFactorOneDoesNotWait) {
  compute(1.0);
  EXPECT_TRUE(sleeps_.empty());
  EXPECT_EQ(now_, 1.0);
}

TEST_F(StragglingTest, EachPieceTakesFactorTimesAsLong) {
  worker_.set_factor(4.0);
  compute(1.0);
  EXPECT_DOUBLE_EQ(now_, 4.0);
  compute(0.5);
  EXPECT_DOUBLE_EQ(now_, 6.0);
}

TEST_F(StragglingTest, OnlyComputingIsStretched) {
  worker_.set_factor(2.0);
  compute(1.0);
  now_ += 5.0;  // pushes, waits for weights
  compute(1.0);
  EXPECT_DOUBLE_EQ(now_, 9.0);
}

TEST_F(StragglingTest, ResultInTheMiddleIsLateToo) {
  worker_.set_factor(3.0);
  worker_.resume();
  now_ += 1.0;
  worker_.lag();  // the first slice is ready
  EXPECT_DOUBLE_EQ(now_, 3.0);
  now_ += 1.0;  // computing continues without resume
  worker_.lag();
  EXPECT_DOUBLE_EQ(now_, 6.0);
}

TEST_F(StragglingTest, TinyPiecesAddUpAndLongSleepsAreMadeUpFor) {
  worker_.set_factor(3.0);
  late_ = 5e-5;
  for (int i = 0; i < 1000; ++i) compute(1e-5);
  EXPECT_NEAR(now_, 0.03, 3e-4);
  EXPECT_LT(sleeps_.size(), 250U);
}

}  // namespace
}  // namespace pushpull

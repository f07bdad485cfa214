#include "common/update/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/base/error.h"

namespace pushpull {
namespace {

// A few roundings of doubles near 0.1.
constexpr double kTolerance = 1e-15;

TEST(Schedule, ConstantStaysAtLr) {
  const ScheduleOptions options{.lr = 0.25};
  EXPECT_EQ(learning_rate(options, 0, 10), 0.25);
  EXPECT_EQ(learning_rate(options, 9, 10), 0.25);
}

TEST(Schedule, StepDropsByGammaAfterEveryInterval) {
  // The same as torch StepLR(step_size=3, gamma=0.5) from 0.8.
  const ScheduleOptions options{.kind = ScheduleKind::kStep, .lr = 0.8, .step = 3, .gamma = 0.5};
  const double expected[] = {0.8, 0.8, 0.8, 0.4, 0.4, 0.4, 0.2, 0.2, 0.2, 0.1};
  for (int64_t step = 0; step < 10; ++step) {
    EXPECT_NEAR(learning_rate(options, step, 10), expected[step], kTolerance) << step;
  }
}

TEST(Schedule, CosineFallsFromLrToMin) {
  // 0.02 + 0.08 * (1 + cos(pi k / 4)) / 2: the cosines are 1, 0.7071067812, 0, -0.7071067812, -1.
  const ScheduleOptions options{.kind = ScheduleKind::kCosine, .lr = 0.1, .min = 0.02};
  const double half_root2 = std::sqrt(0.5);
  EXPECT_NEAR(learning_rate(options, 0, 4), 0.1, kTolerance);
  EXPECT_NEAR(learning_rate(options, 1, 4), 0.06 + 0.04 * half_root2, kTolerance);
  EXPECT_NEAR(learning_rate(options, 2, 4), 0.06, kTolerance);
  EXPECT_NEAR(learning_rate(options, 3, 4), 0.06 - 0.04 * half_root2, kTolerance);
  EXPECT_EQ(learning_rate(options, 4, 4), 0.02);
  EXPECT_EQ(learning_rate(options, 400, 4), 0.02);
}

TEST(Schedule, WarmupRisesLinearlyAndEndsAtLr) {
  const ScheduleOptions options{.lr = 0.4, .warmup_steps = 4};
  const double expected[] = {0.1, 0.2, 0.3, 0.4, 0.4, 0.4};
  for (int64_t step = 0; step < 6; ++step) {
    EXPECT_NEAR(learning_rate(options, step, 6), expected[step], kTolerance) << step;
  }
}

TEST(Schedule, TheScheduleStartsAfterTheWarmup) {
  ScheduleOptions warm{.kind = ScheduleKind::kStep, .lr = 0.8, .step = 3, .gamma = 0.5};
  ScheduleOptions cold = warm;
  warm.warmup_steps = 5;
  for (int64_t step = 0; step < 20; ++step) {
    EXPECT_EQ(learning_rate(warm, step + 5, 25), learning_rate(cold, step, 20)) << step;
  }
  warm.kind = cold.kind = ScheduleKind::kCosine;
  for (int64_t step = 0; step <= 20; ++step) {
    EXPECT_EQ(learning_rate(warm, step + 5, 25), learning_rate(cold, step, 20)) << step;
  }
}

TEST(Schedule, AWarmupAsLongAsTheJobDividesByNothing) {
  const ScheduleOptions options{
      .kind = ScheduleKind::kCosine, .lr = 0.1, .min = 0.01, .warmup_steps = 4};
  EXPECT_EQ(learning_rate(options, 3, 4), 0.1);
  EXPECT_EQ(learning_rate(options, 4, 4), 0.01);
}

TEST(Schedule, RefusesAStepBeforeTheFirst) { EXPECT_THROW(learning_rate({}, -1, 10), Error); }

}  // namespace
}  // namespace pushpull

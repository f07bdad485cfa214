#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "common/base/error.h"
#include "common/update/optimizer_options.h"

namespace pushpull {
namespace {

// A few roundings of doubles near 0.1.
constexpr double kRateTolerance = 1e-15;

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
    EXPECT_NEAR(learning_rate(options, step, 10), expected[step], kRateTolerance) << step;
  }
}

TEST(Schedule, CosineFallsFromLrToMin) {
  // 0.02 + 0.08 * (1 + cos(pi k / 4)) / 2: the cosines are 1, 0.7071067812, 0, -0.7071067812, -1.
  const ScheduleOptions options{.kind = ScheduleKind::kCosine, .lr = 0.1, .min = 0.02};
  const double half_root2 = std::sqrt(0.5);
  EXPECT_NEAR(learning_rate(options, 0, 4), 0.1, kRateTolerance);
  EXPECT_NEAR(learning_rate(options, 1, 4), 0.06 + 0.04 * half_root2, kRateTolerance);
  EXPECT_NEAR(learning_rate(options, 2, 4), 0.06, kRateTolerance);
  EXPECT_NEAR(learning_rate(options, 3, 4), 0.06 - 0.04 * half_root2, kRateTolerance);
  EXPECT_EQ(learning_rate(options, 4, 4), 0.02);
  EXPECT_EQ(learning_rate(options, 400, 4), 0.02);
}

TEST(Schedule, LinearFallsFromLrToMin) {
  const ScheduleOptions options{.kind = ScheduleKind::kLinear, .lr = 0.1, .min = 0.02};
  const double expected[] = {0.1, 0.08, 0.06, 0.04, 0.02};
  for (int64_t step = 0; step < 5; ++step) {
    EXPECT_NEAR(learning_rate(options, step, 4), expected[step], kRateTolerance) << step;
  }
  EXPECT_EQ(learning_rate(options, 400, 4), 0.02);
}

TEST(Schedule, LinearIsThatOfHuggingFaceAfterTheWarmup) {
  // transformers.get_linear_schedule_with_warmup(optimizer, 10, 100): the factor of step s >= 10 is
  // (100 - s) / 90.
  const ScheduleOptions options{.kind = ScheduleKind::kLinear, .lr = 5e-5, .warmup_steps = 10};
  for (int64_t step = 10; step <= 100; ++step) {
    EXPECT_EQ(learning_rate(options, step, 100), 5e-5 * (static_cast<double>(100 - step) / 90.0));
  }
}

TEST(Schedule, AFractionOfTheStepsRoundsDown) {
  ScheduleOptions part{.kind = ScheduleKind::kLinear, .lr = 0.8, .warmup_fraction = 0.1};
  ScheduleOptions fixed{.kind = ScheduleKind::kLinear, .lr = 0.8};
  for (const auto& [total, warmup] : {std::pair{9, 0}, {10, 1}, {19, 1}, {20, 2}, {47, 4}}) {
    fixed.warmup_steps = warmup;
    for (int64_t step = 0; step <= total; ++step) {
      EXPECT_EQ(learning_rate(part, step, total), learning_rate(fixed, step, total))
          << step << " of " << total;
    }
  }
  part.warmup_fraction = 0.3;  // int(10 * 0.3) is 3 in Python, too
  EXPECT_NEAR(learning_rate(part, 1, 10), 0.8 * 2 / 3, kRateTolerance);
  EXPECT_NEAR(learning_rate(part, 2, 10), 0.8, kRateTolerance);
}

TEST(Schedule, WarmupRisesLinearlyAndEndsAtLr) {
  const ScheduleOptions options{.lr = 0.4, .warmup_steps = 4};
  const double expected[] = {0.1, 0.2, 0.3, 0.4, 0.4, 0.4};
  for (int64_t step = 0; step < 6; ++step) {
    EXPECT_NEAR(learning_rate(options, step, 6), expected[step], kRateTolerance) << step;
  }
}

TEST(Schedule, TheScheduleStartsAfterTheWarmup) {
  ScheduleOptions warm{.kind = ScheduleKind::kStep, .lr = 0.8, .step = 3, .gamma = 0.5};
  ScheduleOptions cold = warm;
  warm.warmup_steps = 5;
  for (int64_t step = 0; step < 20; ++step) {
    EXPECT_EQ(learning_rate(warm, step + 5, 25), learning_rate(cold, step, 20)) << step;
  }
  for (const ScheduleKind kind : {ScheduleKind::kCosine, ScheduleKind::kLinear}) {
    warm.kind = cold.kind = kind;
    for (int64_t step = 0; step <= 20; ++step) {
      EXPECT_EQ(learning_rate(warm, step + 5, 25), learning_rate(cold, step, 20)) << step;
    }
  }
}

TEST(Schedule, AWarmupAsLongAsTheJobDividesByNothing) {
  for (const ScheduleKind kind : {ScheduleKind::kCosine, ScheduleKind::kLinear}) {
    const ScheduleOptions options{.kind = kind, .lr = 0.1, .min = 0.01, .warmup_steps = 4};
    EXPECT_EQ(learning_rate(options, 3, 4), 0.1);
    EXPECT_EQ(learning_rate(options, 4, 4), 0.01);
  }
}

TEST(Schedule, MilestonesAreStepsOfTheJob) {
  const ScheduleOptions options{.kind = ScheduleKind::kMultistep,
                                .lr = 0.8,
                                .gamma = 0.5,
                                .warmup_steps = 2,
                                .milestones = {3, 4}};
  const double expected[] = {0.4, 0.8, 0.8, 0.4, 0.2, 0.2};
  for (int64_t step = 0; step < 6; ++step) {
    EXPECT_NEAR(learning_rate(options, step, 6), expected[step], kRateTolerance) << step;
  }
}

TEST(Schedule, PointsAreJoinedByLinesAndGoOn) {
  const ScheduleOptions options{.kind = ScheduleKind::kPoints,
                                .points = {{1, 0.1}, {3, 0.3}, {4, 0.0}}};
  const double expected[] = {0.1, 0.1, 0.2, 0.3, 0.0, 0.0};
  for (int64_t step = 0; step < 6; ++step) {
    EXPECT_NEAR(learning_rate(options, step, 1), expected[step], kRateTolerance) << step;
  }
}

TEST(Schedule, DeepSpeedsWarmupIsOneStepBehind) {
  ScheduleOptions options{.lr = 1.0, .warmup_steps = 4};
  options.warmup_shape = WarmupShape::kDeepSpeedLog;
  const double expected[] = {0.0, 0.0, 0.5, 0.7924812503605781, 1.0, 1.0, 1.0};  // log 3 / log 4
  for (int64_t step = 0; step < 7; ++step) {
    EXPECT_NEAR(learning_rate(options, step, 7), expected[step], kRateTolerance) << step;
  }
  options.kind = ScheduleKind::kLinear;
  options.horizon = 6;
  EXPECT_EQ(learning_rate(options, 5, 100), 1.0) << "iteration 4 of 6, after 4 of the warm-up";
  EXPECT_EQ(learning_rate(options, 6, 100), 0.5);
  EXPECT_EQ(learning_rate(options, 7, 100), 0.0);
  EXPECT_EQ(learning_rate(options, 8, 100), 0.0);
}

TEST(Schedule, OneCycleRisesAndFalls) {
  ScheduleOptions options{.kind = ScheduleKind::kOneCycle, .lr = 1.0, .min = 0.1};
  options.warmup_from = 0.2;
  options.warmup_steps = 3;
  EXPECT_NEAR(learning_rate(options, 0, 7), 0.2, kRateTolerance);
  EXPECT_NEAR(learning_rate(options, 1, 7), 0.6, kRateTolerance);
  EXPECT_NEAR(learning_rate(options, 2, 7), 1.0, kRateTolerance);
  EXPECT_NEAR(learning_rate(options, 4, 7), 0.55, kRateTolerance);
  EXPECT_NEAR(learning_rate(options, 6, 7), 0.1, kRateTolerance);
  EXPECT_NEAR(learning_rate(options, 60, 7), 0.1, kRateTolerance);
  options.warmup_steps = 1;  // no rise: the first step has the highest rate
  EXPECT_EQ(learning_rate(options, 0, 7), 1.0);
}

TEST(Schedule, ExternalIsWhatAProgramSaysAndAtFirstTheRateOfTheJob) {
  const ScheduleOptions options{.kind = ScheduleKind::kExternal, .lr = 0.25};
  EXPECT_EQ(learning_rate(options, 3, 10, 0.0), 0.0);
  EXPECT_EQ(learning_rate(options, 3, 10), 0.25);
  EXPECT_EQ(learning_rate({.lr = 0.5}, 3, 10, 0.0), 0.5) << "the job has rates of its own";
}

TEST(Schedule, RefusesAStepBeforeTheFirst) { EXPECT_THROW(learning_rate({}, -1, 10), Error); }

}  // namespace
}  // namespace pushpull

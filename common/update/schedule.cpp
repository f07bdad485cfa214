#include "common/update/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/base/error.h"

namespace pushpull {

namespace {

// Returns lr * gamma^drops by squaring, with the same bits on every processor.
double drop(double lr, double gamma, int64_t drops) {
  double factor = 1.0;
  for (; drops > 0; drops /= 2) {
    if (drops % 2 == 1) factor *= gamma;
    gamma *= gamma;
  }
  return lr * factor;
}

double cosine(double lr, double min, int64_t step, int64_t horizon) {
  if (step >= horizon) return min;
  const double progress = static_cast<double>(step) / static_cast<double>(horizon);
  // The last bit of cos may differ between processors; the optimizer's rounding to float hides it.
  return min + (lr - min) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

double linear(double lr, double min, int64_t step, int64_t horizon) {
  if (step >= horizon) return min;
  return min + (lr - min) * (static_cast<double>(horizon - step) / static_cast<double>(horizon));
}

int64_t warmup_of(const ScheduleOptions& options, int64_t total_steps) {
  if (options.warmup_fraction <= 0.0) return std::max<int64_t>(options.warmup_steps, 0);
  return static_cast<int64_t>(static_cast<double>(total_steps) * options.warmup_fraction);
}

}  // namespace

double learning_rate(const ScheduleOptions& options, int64_t step, int64_t total_steps) {
  PP_ASSERT(step >= 0);
  const int64_t warmup = warmup_of(options, total_steps);
  if (step < warmup) {
    return options.lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  }
  switch (options.kind) {
    case ScheduleKind::kConstant:
      return options.lr;
    case ScheduleKind::kStep:
      PP_ASSERT(options.step > 0);
      return drop(options.lr, options.gamma, (step - warmup) / options.step);
    case ScheduleKind::kCosine:
      return cosine(options.lr, options.min, step - warmup, total_steps - warmup);
    case ScheduleKind::kLinear:
      return linear(options.lr, options.min, step - warmup, total_steps - warmup);
  }
  PP_ASSERT(!"a schedule of the enumeration");
  return options.lr;
}

}  // namespace pushpull

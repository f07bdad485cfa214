// Learning-rate schedules as pure functions of the step. Any thread.
// Sources: step = torch StepLR; cosine = torch CosineAnnealingLR without restarts (Loshchilov &
// Hutter, arXiv 1608.03983); linear warm-up (Goyal et al., arXiv 1706.02677) before any of them.
#pragma once

#include <cstdint>
#include <string>

namespace pushpull {

enum class ScheduleKind { kConstant, kStep, kCosine };

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::kConstant;
  double lr = 0.1;     // after the warm-up
  int64_t step = 0;    // lr-step: steps between drops (kStep)
  double gamma = 0.1;  // lr-gamma: factor of each drop (kStep)
  double min = 0.0;    // lr-min: final rate of the cosine
  int64_t warmup_steps =
      0;  // linear from lr / warmup_steps at step 0 to lr at step warmup_steps - 1

  friend bool operator==(const ScheduleOptions&, const ScheduleOptions&) = default;
};

// Throws Error(kUsage) that quotes the text.
ScheduleKind parse_schedule(const std::string& text);
std::string to_string(ScheduleKind kind);

// Returns the rate at 0-based `step` of a job of `total_steps`. The schedule itself starts after
// the warm-up; cosine reaches `min` at total_steps.
double learning_rate(const ScheduleOptions& options, int64_t step, int64_t total_steps);

}  // namespace pushpull

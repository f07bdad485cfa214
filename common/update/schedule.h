// Learning-rate schedules as pure functions of the step. Any thread.
// Sources: step = torch StepLR; cosine = torch CosineAnnealingLR without restarts (Loshchilov &
// Hutter, arXiv 1608.03983); linear = get_linear_schedule_with_warmup of Hugging Face's
// transformers; linear warm-up (Goyal et al., arXiv 1706.02677) before any of them.
#pragma once

#include <cstdint>
#include <string>

namespace pushpull {

enum class ScheduleKind { kConstant, kStep, kCosine, kLinear };

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::kConstant;
  double lr = 0.1;     // after the warm-up
  int64_t step = 0;    // lr-step: steps between drops (kStep)
  double gamma = 0.1;  // lr-gamma: factor of each drop (kStep)
  double min = 0.0;    // lr-min: final rate (kCosine, kLinear)
  // The rate rises linearly from lr / n at step 0 to lr at step n - 1, the last of the warm-up's n
  // steps: warmup_steps, or the whole part of warmup_fraction times all steps if that is > 0.
  int64_t warmup_steps = 0;
  double warmup_fraction = 0.0;

  // Returns true if the rate of a step depends on the number of all steps.
  bool depends_on_length() const {
    return kind == ScheduleKind::kCosine || kind == ScheduleKind::kLinear || warmup_fraction > 0.0;
  }
  friend bool operator==(const ScheduleOptions&, const ScheduleOptions&) = default;
};

// Throws Error(kUsage) that quotes the text.
ScheduleKind parse_schedule(const std::string& text);
std::string to_string(ScheduleKind kind);

// Returns the rate at 0-based `step` of a job of `total_steps`. The schedule itself starts after
// the warm-up; cosine and linear reach `min` at total_steps.
double learning_rate(const ScheduleOptions& options, int64_t step, int64_t total_steps);

}  // namespace pushpull

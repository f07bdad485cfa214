#include "ps/report/checkpoint_interval.h"

#include <algorithm>
#include <cmath>

#include "ps/members/membership.h"

namespace pushpull {

namespace {

// A checkpoint uses processors and memory even if no step visibly waits. This minimum keeps the
// disk idle for four fifths of the time.
constexpr double kMinCost = 0.05;  // fraction of its duration

}  // namespace

void CheckpointInterval::begin(int64_t now_ms, int64_t step) {
  if (began_ms_ < 0) {
    began_ms_ = now_ms;
    due_ms_ = now_ms + kFirstMs;
  }
  chosen_ms_.reset();
  free_ms_ = now_ms;
  free_step_ = step;
}

void CheckpointInterval::reach(int64_t now_ms, int64_t step) {
  const auto ms = static_cast<double>(now_ms - free_ms_);
  if (ms > 0 && step > free_step_) rate_ = static_cast<double>(step - free_step_) / ms;
}

void CheckpointInterval::chosen(int64_t now_ms, int64_t step) {
  reach(now_ms, step);
  chosen_ms_ = now_ms;
  chosen_step_ = step;
}

void CheckpointInterval::gathering(int64_t now_ms, int64_t step) {
  cut_ms_ = now_ms;
  cut_step_ = step;
}

void CheckpointInterval::done(int64_t now_ms, int64_t now_step) {
  if (!chosen_ms_) return;
  took_ms_ = now_ms - cut_ms_;
  const auto all_ms = static_cast<double>(now_ms - *chosen_ms_);
  const double free_ms = rate_ > 0 ? static_cast<double>(now_step - chosen_step_) / rate_ : 0.0;
  cost_ms_ = std::clamp(all_ms - free_ms, kMinCost * static_cast<double>(took_ms_),
                        std::max(all_ms, kMinCost * static_cast<double>(took_ms_)));
  expected_ms_ = spent_ms_ > 0 ? (expected_ms_ + cost_ms_) / 2 : cost_ms_;
  spent_ms_ += cost_ms_;
  const auto allowed_ms = static_cast<int64_t>(std::ceil((spent_ms_ + expected_ms_) / kShare));
  due_ms_ = std::max(cut_ms_ + kMinMs, began_ms_ + allowed_ms);
  chosen_ms_.reset();
  free_ms_ = now_ms;
  free_step_ = now_step;
}

bool CheckpointInterval::due(int64_t now_ms) const {
  return began_ms_ >= 0 && !chosen_ms_ && now_ms >= due_ms_;
}

int64_t CheckpointInterval::steps_in(double ms) const {
  return static_cast<int64_t>(std::ceil(rate_ * ms));
}

std::string CheckpointInterval::line() const {
  // The next one counts only once it is on disk.
  const int64_t repeat_ms = due_ms_ - cut_ms_ + took_ms_;
  return "the checkpoint of step " + std::to_string(cut_step_) + " took " + seconds_text(took_ms_) +
         " s and cost about " + std::to_string(std::llround(cost_ms_)) +
         " ms of training; the next one is due in " +
         seconds_text(std::max<int64_t>(0, due_ms_ - free_ms_)) +
         " s: until it is on disk, a loss repeats at most " +
         std::to_string(steps_in(static_cast<double>(repeat_ms))) + " steps (" +
         seconds_text(repeat_ms) + " s)";
}

}  // namespace pushpull

#include "cli/eval_follow.h"

namespace pushpull {

EvalFollow::Next EvalFollow::next(const Sight& sight, int64_t now_ms) {
  saw_run_ = saw_run_ || sight.running;
  if (newest_ && !sight.checkpoints.empty() && sight.checkpoints.rbegin()->first < *newest_) {
    newest_.reset();
  }
  const auto first = newest_ ? sight.checkpoints.upper_bound(*newest_) : sight.checkpoints.begin();
  if (first != sight.checkpoints.end()) return {Do::kEvaluate, first->first, first->second};
  if (!sight.running && (saw_run_ || sight.summary)) return {.what = Do::kEnd};
  if (now_ms >= since_ms_ + timeout_ms_) return {.what = Do::kGiveUp};
  return {.what = Do::kWait};
}

void EvalFollow::done(int64_t step, int64_t now_ms) {
  newest_ = step;
  since_ms_ = now_ms;
}

}  // namespace pushpull

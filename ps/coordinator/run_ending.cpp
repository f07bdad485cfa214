#include "ps/coordinator/run_ending.h"

#include <algorithm>

namespace pushpull {

namespace {

// A member that hears nothing for heartbeat-timeout takes the coordinator for lost.
constexpr int64_t kMostMs = 2000;

int64_t half_of(double seconds) { return static_cast<int64_t>(seconds * 500); }

}  // namespace

RunEnding::RunEnding(const Job& job, FileWatch& files, JobEffects& effects)
    : most_ms_(std::min(kMostMs, half_of(job.heartbeat_timeout_s))),
      files_(files),
      effects_(effects) {}

void RunEnding::save(const RunEnd& end) {
  files_.begin(FileStep::kEnd);
  effects_.save_end(end);
}

void RunEnding::on_failure(Now now, Coordinator& coordinator, const RunEnd& end, bool late) {
  if (!coordinator.holds_end()) return;
  if (!failed_ms_) failed_ms_ = now.awake_ms;
  if (!files_.busy()) {
    failure_saved_ = true;
    return save(end);
  }
  if (late || files_.overdue(now.awake_ms) || now.awake_ms - *failed_ms_ > most_ms_) {
    coordinator.tell_end(now.awake_ms);
  }
}

void RunEnding::saved(Now now, Coordinator& coordinator) {
  if (coordinator.phase() == wire::PHASE_FAILED && !failure_saved_) return;
  coordinator.tell_end(now.awake_ms);
}

}  // namespace pushpull

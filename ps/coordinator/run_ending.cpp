#include "ps/coordinator/run_ending.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pushpull {

namespace {

// A member that hears nothing for heartbeat-timeout takes the coordinator for lost.
constexpr int64_t kMaxMs = 2000;

int64_t half_of(double seconds) { return static_cast<int64_t>(seconds * 500); }

}  // namespace

RunEnding::RunEnding(const CoordinatorOptions& options, const StopRequest& stop,
                     const Transfers& transfers, FileWatch& files, JobEffects& effects)
    : options_(options),
      stop_(stop),
      transfers_(transfers),
      files_(files),
      effects_(effects),
      max_ms_(std::min(kMaxMs, half_of(options.job.heartbeat_timeout_s))) {}

void RunEnding::save(const Coordinator& coordinator) {
  files_.begin(FileStep::kEnd);
  effects_.save_end(end_of(coordinator));
}

void RunEnding::saved(Now now, Coordinator& coordinator) {
  if (coordinator.phase() == wire::PHASE_FINISHING) {
    announce(now, coordinator);
    if (coordinator.barriers().stop_step == 0) return coordinator.finish();
    return coordinator.fail(ErrorCode::kStopped, stopped_text(coordinator));
  }
  if (failure_saved_) announce(now, coordinator);  // or else the job has failed since `save`
}

void RunEnding::on_tick(Now now, Coordinator& coordinator) {
  if (coordinator.phase() != wire::PHASE_FAILED || announced_) return;
  if (!failed_ms_) failed_ms_ = now.awake_ms;
  if (!files_.busy()) {
    failure_saved_ = true;
    return save(coordinator);
  }
  const bool hangs = files_.overdue(now.awake_ms) || now.awake_ms - *failed_ms_ > max_ms_;
  if (hangs || stop_.late(now)) announce(now, coordinator);
}

void RunEnding::announce(Now now, Coordinator& coordinator) {
  if (!std::exchange(announced_, true)) coordinator.announce_end(now.awake_ms);
}

int RunEnding::exit_code(const Coordinator& coordinator) const {
  if (const auto code = stop_.exit_code()) return *code;
  if (coordinator.phase() == wire::PHASE_FAILED) {
    return static_cast<int>(coordinator.failure_code());
  }
  return transfers_.end_failure().empty() ? 0 : static_cast<int>(ErrorCode::kIo);
}

// Returns how the run ends, once the summary is written or the job has failed.
RunEnd RunEnding::end_of(const Coordinator& coordinator) const {
  RunEnd end{.run = options_.run, .exit_code = exit_code(coordinator)};
  end.members = std::ssize(coordinator.members().all()) - 1;
  if (coordinator.phase() == wire::PHASE_FAILED) {
    end.code = static_cast<int>(coordinator.failure_code());
    end.text = coordinator.failure_text();
  } else if (coordinator.barriers().stop_step > 0) {
    end.code = end.exit_code = static_cast<int>(ErrorCode::kStopped);
    end.text = stopped_text(coordinator);
  } else {
    end.finished = true;
    end.text = transfers_.end_failure();
  }
  return end;
}

std::string RunEnding::stopped_text(const Coordinator& coordinator) const {
  return "[job] stopped by " + stop_.cause() + " at step " +
         std::to_string(coordinator.barriers().stop_step) +
         ": its checkpoint is on disk, the same command with resume goes on";
}

}  // namespace pushpull

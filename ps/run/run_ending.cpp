#include "ps/run/run_ending.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/base/process.h"
#include "ps/server/data_plane.h"

namespace pushpull {

PlannedStops::PlannedStops(const StopOptions& options, const MemberInfo& self,
                           const FileWatch& files, ServedData& data, Transfers& transfers,
                           JobEffects& effects)
    : options_(options),
      files_(files),
      data_(data),
      transfers_(transfers),
      effects_(effects),
      request_(self, options) {}

bool PlannedStops::take(Now now, int signal, const Coordinator& coordinator) {
  if (asks_to_end(signal)) {
    const bool at_once = request_.take(now, signal);
    if (at_once) {
      effects_.show_line("[job] " + signal_name(signal) + " again: ended at once; " +
                         saved(coordinator).loss());
    }
    return at_once;
  }
  if (signal == options_.checkpoint_signal) {
    wanted_ = true;
  } else if (ignored_.insert(signal).second) {
    effects_.show_line("ignored " + signal_name(signal) + ": checkpoint-signal is " +
                       (options_.checkpoint_signal == 0 ? std::string("none")
                                                        : signal_name(options_.checkpoint_signal)));
  }
  return false;
}

bool PlannedStops::advance(Now now, Coordinator& coordinator, bool trained) {
  note_written(coordinator);
  if (wanted_) write_checkpoint(now, coordinator, trained);
  if (now.utc_ms >= options_.stop_at_utc_ms && !request_.asked()) {
    effects_.show_line("[job] " + std::string(StopRequest::kTimeLimit) + ": " +
                       options_.stop_reason);
    request_.take_limit(now);
  }
  if (coordinator.departures().none_left() && !request_.asked()) {
    request_.take_last_worker(now, coordinator.training()->cut_without_workers() > 0);
  }
  return request_.asked() && stop(now, coordinator, trained);
}

// ---- checkpoints ----

void PlannedStops::settle(const std::string& outcome) {
  wanted_ = put_off_ = false;
  effects_.show_line("[job] " + signal_name(options_.checkpoint_signal) + ": " + outcome);
}

void PlannedStops::write_checkpoint(Now now, Coordinator& coordinator, bool trained) {
  const wire::Phase phase = coordinator.phase();
  if (phase == wire::PHASE_GATHERING && !trained) {
    return settle("training has not begun, so there is nothing to write");
  }
  if (phase > wire::PHASE_TRAINING) return settle("the run ends anyway");
  if (coordinator.barriers().stop_step > 0) {
    return settle("the run stops, with a checkpoint");
  }
  // In a term that ends or begins, nothing can be added: the next one writes it.
  if (phase != wire::PHASE_TRAINING || coordinator.departures().lost_server()) return;
  const TrainingRun& run = *coordinator.training();
  if (awaited_ > run.floor()) {
    return settle("the checkpoint at step " + std::to_string(awaited_) + " covers it");
  }
  if (awaited_ >= 0 || run.snapshots().busy() || run.choosing()) {
    if (!std::exchange(put_off_, true)) {
      effects_.show_line("[job] " + signal_name(options_.checkpoint_signal) +
                         ": a checkpoint follows that in progress");
    }
    return;
  }
  const std::optional<int64_t> step = transfers_.add_checkpoint(now);
  if (!step) return settle("the run ends within a few steps, with a checkpoint");
  awaited_ = *step;
  settle("a checkpoint at step " + std::to_string(*step) + ", training goes on");
}

// A checkpoint that a lost server takes along is asked for again in the next term.
void PlannedStops::note_written(const Coordinator& coordinator) {
  if (awaited_ < 0) return;
  const std::optional<int64_t> saved = transfers_.saved_step();
  if (saved && *saved >= awaited_) {
    if (*saved == awaited_) {
      effects_.show_line("[job] the checkpoint of step " + std::to_string(awaited_) +
                         " is on disk");
    }
    awaited_ = -1;
  } else if (coordinator.phase() == wire::PHASE_GATHERING) {
    wanted_ = true;
    awaited_ = -1;
  }
}

// ---- the stop ----

RunSaved PlannedStops::saved(const Coordinator& coordinator) const {
  RunSaved out;
  if (const TrainingRun* run = coordinator.training()) out.step = run->floor();
  out.whole_step = transfers_.saved_step();
  return out;
}

bool PlannedStops::stop(Now now, Coordinator& coordinator, bool trained) {
  const wire::Phase phase = coordinator.phase();
  if (const auto error = request_.failure(now, phase, trained, files_, saved(coordinator))) {
    coordinator.fail(error->code(), error->what());
    return false;
  }
  if (phase >= wire::PHASE_FINISHING || coordinator.barriers().stop_step > 0) return false;
  data_.work();  // count all that arrived before naming the cut
  const bool stops = coordinator.stop();
  if (stops || (phase == wire::PHASE_TRAINING && request_.first_notice())) {
    effects_.show_line("[job] " + request_.cause() + ": the run " +
                       (stops ? "stops with a checkpoint at step " +
                                    std::to_string(coordinator.barriers().stop_step)
                              : "has no consistent cut before its end"));
  }
  return stops;
}

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
    coordinator.announce_end(now.awake_ms);
    if (coordinator.barriers().stop_step == 0) return coordinator.finish();
    return coordinator.fail(ErrorCode::kStopped, stopped_text(coordinator));
  }
  if (failure_saved_)
    coordinator.announce_end(now.awake_ms);  // or else the job has failed since `save`
}

void RunEnding::on_tick(Now now, Coordinator& coordinator) {
  if (coordinator.phase() != wire::PHASE_FAILED || coordinator.end_announced()) return;
  if (!failed_ms_) failed_ms_ = now.awake_ms;
  if (!files_.busy()) {
    failure_saved_ = true;
    return save(coordinator);
  }
  const bool hangs = files_.overdue(now.awake_ms) || now.awake_ms - *failed_ms_ > max_ms_;
  if (hangs || stop_.late(now)) coordinator.announce_end(now.awake_ms);
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
  RunEnd end{.term_id = options_.term_id, .exit_code = exit_code(coordinator)};
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
         ": its checkpoint is on disk, the same command with --resume auto goes on";
}

}  // namespace pushpull

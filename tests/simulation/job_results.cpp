#include "tests/simulation/job_results.h"

#include <utility>

#include "common/base/error.h"

namespace pushpull::sim {

RunHistory JobResults::history_of_run() {
  RunHistory history = cluster_.disk.history;
  history.trained = cluster_.disk.started;
  if (cluster_.disk.started) ++history.recoveries;
  return history;
}

TermIds JobResults::begin_term(int64_t term) {
  if (term != cluster_.disk.term) cluster_.wrong("a term begins that is not on disk");
  return {cluster_.dice().next(), "of term " + std::to_string(term)};
}

void JobResults::save_term(int64_t term, const RunHistory& history) {
  after_files([this, term, history]() -> FilesDone {
    if (term != cluster_.disk.term + 1) cluster_.wrong("a term is skipped or begins twice");
    cluster_.disk.term = term;
    cluster_.disk.history = history;
    return {};
  });
}

void JobResults::save_end(const RunEnd& /*end*/) {
  after_files([]() -> FilesDone { return {}; });
}

void JobResults::load_start(const Declaration& /*declaration*/) {
  after_files([this]() -> FilesDone { return {.start = start_point()}; });
}

// Returns the newest checkpoint, or the fresh start if no run has started yet.
StartPoint JobResults::start_point() const {
  const auto found = cluster_.checkpoints.rbegin();
  if (!cluster_.disk.started || found == cluster_.checkpoints.rend()) {
    return {.weights = cluster_.start_state()};
  }
  return {.weights = std::make_shared<FlatState>(found->second),
          .counts = cluster_.disk.counts.at(found->first),
          .resumed = true,
          .evaluation = cluster_.disk.records[found->first]};
}

void JobResults::open_files(const Declaration& /*declaration*/, const StartPoint& /*start*/,
                            const RunHistory& history) {
  after_files([this, history]() -> FilesDone {
    if (cluster_.disk.started) ++cluster_.recoveries;
    cluster_.disk.started = true;
    cluster_.disk.history = history;
    return {};
  });
}

void JobResults::started(const Declaration& /*declaration*/, int64_t start_step) {
  cluster_.chosen.erase(cluster_.chosen.lower_bound(start_step), cluster_.chosen.end());
}

void JobResults::hash_weights(GatheredState snapshot) {
  const FlatState state = flatten(std::move(snapshot));
  if (cluster_.start_weights.empty()) cluster_.start_weights = state.weights;
  after_writing([this, step = state.step] { written(step); });
}

void JobResults::write_checkpoint(GatheredState snapshot, CheckpointState state,
                                  CheckpointKind kind) {
  if (kind == CheckpointKind::kBest) {
    return after_writing([this, flat = flatten(std::move(snapshot))] {
      cluster_.best = flat;
      written(flat.step, nullptr, CheckpointKind::kBest);
    });
  }
  const Job& job = cluster_.scenario().job;
  const bool last = state.step == (job.stop_after > 0 ? job.stop_after : job.steps);
  if (!last && cluster_.dice().chance(cluster_.scenario().write_fails)) {
    cluster_.lost_checkpoints.insert(state.step);
    return after_writing([this, step = state.step] {
      written(step, std::make_exception_ptr(Error(ErrorCode::kIo, "[file] full")));
    });
  }
  after_writing([this, flat = flatten(std::move(snapshot)), counts = state.counts,
                 evaluation = state.evaluation] {
    const bool again = !cluster_.checkpoints.insert_or_assign(flat.step, flat).second;
    if (again && cluster_.recoveries == 0) {
      cluster_.wrong("barrier " + std::to_string(flat.step) + " was written twice");
    }
    cluster_.disk.counts[flat.step] = counts;
    cluster_.disk.records[flat.step] = evaluation;
    written(flat.step);
  });
}

// Calls `then` after the time of a write, unless the process dies earlier: an incomplete write is
// lost.
void JobResults::after_writing(std::function<void()> then) {
  const int64_t duration = cluster_.dice().between(0, cluster_.scenario().write_us);
  cluster_.clock().after(duration, [this, then = std::move(then)] {
    if (alive()) then();
  });
}

// Does the work at the end of its time, unless the process dies earlier.
void JobResults::after_files(std::function<FilesDone()> work) {
  cluster_.clock().after(cluster_.scenario().file_us, [this, work = std::move(work)] {
    if (alive()) filed(work());
  });
}

void JobResults::show_line(const std::string& line) {
  if (line.find("until an earlier checkpoint is written") != std::string::npos) {
    ++cluster_.checkpoint_waits;
  }
  if (line.starts_with("[job] lost ")) ++cluster_.lost_members;
  const std::string asked = "[job] SIGUSR1: a checkpoint at step ";
  if (line.starts_with(asked)) {
    cluster_.asked_checkpoints.insert(std::stoll(line.substr(asked.size())));
  }
}

void JobResults::show_moment(const RunFigures& moment) {
  if (!moment.evaluation) return;
  const Evaluation& evaluation = *moment.evaluation;
  const bool again = !cluster_.evaluations.insert_or_assign(evaluation.step, evaluation).second;
  if (again && cluster_.recoveries == 0) {
    cluster_.wrong("evaluation " + std::to_string(evaluation.step) + " was shown twice");
  }
}

void JobResults::show_members(const std::string& json) { cluster_.members_json = json; }

// A process that is killed between the summary and its end repeats the run's last steps.
void JobResults::write_summary(RunFigures summary) {
  if (std::exchange(summarised_, true)) cluster_.wrong("the summary was written twice");
  after_files([this, summary = std::move(summary)]() -> FilesDone {
    cluster_.summary = summary;
    return {};
  });
}

}  // namespace pushpull::sim

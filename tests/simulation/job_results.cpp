#include "tests/simulation/job_results.h"

namespace pushpull::sim {

StartPoint JobResults::load_start(const Declaration& /*declaration*/) {
  return {cluster_.start_state(), ""};
}

void JobResults::hash_weights(GatheredState snapshot) {
  const FlatState state = flatten(std::move(snapshot));
  cluster_.start_weights = state.weights;
  keep(state.step);
}

void JobResults::write_checkpoint(GatheredState snapshot, CheckpointState /*state*/,
                                  bool /*hash*/) {
  const FlatState state = flatten(std::move(snapshot));
  if (!cluster_.checkpoints.emplace(state.step, state).second) {
    cluster_.wrong("barrier " + std::to_string(state.step) + " was written twice");
  }
  keep(state.step);
}

// Writing takes time.
void JobResults::keep(int64_t step) {
  const int64_t duration = cluster_.dice().between(0, cluster_.scenario().write_us);
  cluster_.clock().after(duration, [this, step] { written(step); });
}

void JobResults::show_line(const std::string& line) {
  if (line.find("until an earlier checkpoint is written") != std::string::npos) {
    ++cluster_.checkpoint_waits;
  }
  if (line.starts_with("[job] lost ")) ++cluster_.lost_members;
}

void JobResults::show_moment(const Moment& moment) {
  if (!moment.evaluation) return;
  const Evaluation& evaluation = *moment.evaluation;
  if (!cluster_.evaluations.emplace(evaluation.step, evaluation).second) {
    cluster_.wrong("evaluation " + std::to_string(evaluation.step) + " was shown twice");
  }
}

void JobResults::show_members(const std::string& json) { cluster_.members_json = json; }

void JobResults::write_summary(const Coordinator& /*coordinator*/, Summary summary) {
  if (cluster_.summary) cluster_.wrong("the summary was written twice");
  cluster_.summary = std::move(summary);
}

}  // namespace pushpull::sim

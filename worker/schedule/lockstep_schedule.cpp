#include "worker/schedule/lockstep_schedule.h"

namespace pushpull {

LockstepSchedule::LockstepSchedule(const WorkPlan& plan, bool subtrees)
    : subtrees_(subtrees), shares_(plan) {}

// A new share begins at the step of the weights in use: without this share no worker can be further
// ahead. If the run is, the servers' answers show it.
bool LockstepSchedule::on_shares(const wire::State& state) {
  return shares_.assign(state, [this](int64_t /*from_step*/) { return clock_; });
}

// Only the servers know the current step. Some may be a step ahead; they still have the previous
// version, and a new worker needs one version of all slices.
std::optional<PullAim> LockstepSchedule::on_weights(const PulledWeights& weights) {
  if (weights.min_version != weights.max_version) {
    return PullAim{.clock = weights.min_version, .may_be_past = clock_ < 0};
  }
  clock_ = weights.min_version;
  shares_.begin_at(clock_);
  return std::nullopt;
}

Schedule::Decision LockstepSchedule::next() const {
  if (clock_ < 0) {
    if (shares_.empty()) return {};
    return {{}, PullAim{.versions = PullAim::kNewest}};
  }
  const std::optional<Task> task = wanted();
  if (!task) {
    if (shares_.empty()) return {};
    // the last push of an ended share is resent, like any other, while a pull waits for it
    const int64_t newest = shares_.newest_clock();
    if (clock_ < newest) return {{}, PullAim{.clock = newest}};
    return {{Task::kDone, shares_.plan().barriers.end_step, {}}, std::nullopt};
  }
  if (weights_fit(*task)) return {*task, std::nullopt};
  return {{}, PullAim{.clock = task->step, .at_barrier = task->kind == Task::kEvaluate}};
}

// Not certain with several shares, because another one may come first, nor before an evaluation,
// which must be reported before its barrier's weights are used for the next step.
std::optional<PullAim> LockstepSchedule::pull_after(int64_t step) const {
  const Barriers& barriers = shares_.plan().barriers;
  const int64_t clock = barriers.round_end(step);
  if (shares_.unfinished() != 1 || clock >= barriers.end_step || barriers.evaluation_due(clock)) {
    return std::nullopt;
  }
  return PullAim{.clock = clock};
}

int64_t LockstepSchedule::steps_from(int64_t step) const {
  return shares_.plan().barriers.round_end(step) - step;
}

std::vector<Range> LockstepSchedule::nodes(Range range) const {
  if (!subtrees_) return {range};
  return maximal_subtrees(range, shares_.plan().micro_batches);
}

}  // namespace pushpull

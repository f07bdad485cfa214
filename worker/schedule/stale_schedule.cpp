#include "worker/schedule/stale_schedule.h"

namespace pushpull {

bool StaleSchedule::on_shares(const wire::State& state) {
  return shares_.assign(state, [](int64_t from_step) { return from_step; });
}

// Pulls between any two pushes, also between those of two shares, so that a lost worker has at most
// one push in flight.
bool StaleSchedule::weights_fit(const Task& task) const {
  if (clock_ < 0) return false;
  if (task.kind == Task::kEvaluate) return at_barrier_ && clock_ == task.step;
  return fresh_ && clock_ >= task.step;
}

Schedule::Decision StaleSchedule::next() const {
  const std::optional<Task> task = wanted();
  if (!task) {
    if (shares_.empty()) return {};
    return {{Task::kDone, shares_.plan().barriers.end_step, {}}, std::nullopt};
  }
  if (weights_fit(*task)) return {*task, std::nullopt};
  return {{},
          PullAim{.versions = PullAim::kPerServer,
                  .clock = task->step,
                  .at_barrier = task->kind == Task::kEvaluate}};
}

// If some server is past the barrier, the share's previous worker has passed it, and it evaluated
// first: only its last push has not reached all servers.
std::optional<PullAim> StaleSchedule::on_weights(const PulledWeights& weights) {
  fresh_ = true;
  clock_ = weights.aim.clock;
  at_barrier_ = weights.at_barrier;
  for (OwnedShare& share : shares_.all()) {
    if (weights.aim.at_barrier && !at_barrier_ && share.clock == clock_) share.evaluated = true;
  }
  return std::nullopt;
}

void StaleSchedule::on_pushed(int64_t step, Range range) {
  fresh_ = false;
  shares_.pushed(step, range);
}

}  // namespace pushpull

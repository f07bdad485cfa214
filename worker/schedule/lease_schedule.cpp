#include "worker/schedule/lease_schedule.h"

#include <algorithm>

#include "common/base/error.h"

namespace pushpull {

// Takes new checkpoints, and leases that a lost worker has returned.
bool LeaseSchedule::on_shares(const wire::State& state) {
  for (const int64_t step : state.chosen_checkpoints()) plan_.barriers.choose(step);
  return on_leases(state.leases());
}

bool LeaseSchedule::on_leases(const google::protobuf::RepeatedPtrField<wire::Lease>& leases) {
  for (const wire::Lease& lease : leases) {
    if (lease.number() <= newest_lease_ || !fits(lease)) continue;
    newest_lease_ = lease.number();
    insert(lease);
  }
  return !leases_.empty();
}

// Leaves a first lease in its place whose weights are here: the worker may be computing it.
void LeaseSchedule::insert(const wire::Lease& lease) {
  const auto order = [](const wire::Lease& l) { return work_order(l.step(), l.evaluate()); };
  const bool begun = !leases_.empty() && weights_fit(*wanted());
  const auto place = std::upper_bound(
      leases_.begin() + (begun ? 1 : 0), leases_.end(), order(lease),
      [&](int64_t value, const wire::Lease& other) { return value < order(other); });
  leases_.insert(place, lease);
}

bool LeaseSchedule::gives_up(const PullAim& pull) const {
  const std::optional<Task> task = wanted();
  if (!task) return false;
  return pull.leases || pull.clock != task->step ||
         pull.at_barrier != (task->kind == Task::kEvaluate);
}

bool LeaseSchedule::fits(const wire::Lease& lease) const {
  const int64_t most = lease.evaluate() ? plan_.chunks : plan_.micro_batches;
  return lease.lo() >= 0 && lease.lo() < lease.hi() && lease.hi() <= most &&
         lease.step() >= plan_.barriers.start_step && lease.step() <= plan_.barriers.end_step;
}

std::optional<Task> LeaseSchedule::wanted() const {
  if (leases_.empty()) return std::nullopt;
  const wire::Lease& lease = leases_.front();
  return Task{
      lease.evaluate() ? Task::kEvaluate : Task::kCompute, lease.step(), {lease.lo(), lease.hi()}};
}

std::optional<Task> LeaseSchedule::upcoming() const {
  if (leases_.size() < 2 || leases_[1].evaluate()) return std::nullopt;
  return Task{Task::kCompute, leases_[1].step(), {leases_[1].lo(), leases_[1].hi()}};
}

bool LeaseSchedule::weights_fit(const Task& task) const {
  if (clock_ < 0) return false;
  if (task.kind == Task::kEvaluate) return at_barrier_ && clock_ == task.step;
  return fresh_ && clock_ >= plan_.barriers.last(task.step);
}

Schedule::Decision LeaseSchedule::next() const {
  const std::optional<Task> task = wanted();
  if (!task) return {{}, PullAim{.versions = PullAim::kPerServer, .leases = true}};
  if (weights_fit(*task)) return {*task, std::nullopt};
  return {{},
          PullAim{.versions = PullAim::kPerServer,
                  .clock = task->step,
                  .at_barrier = task->kind == Task::kEvaluate}};
}

std::optional<PullAim> LeaseSchedule::on_weights(const PulledWeights& weights) {
  fresh_ = true;
  clock_ = weights.aim.clock;
  at_barrier_ = weights.at_barrier;
  return std::nullopt;
}

void LeaseSchedule::on_pushed(int64_t /*step*/, Range /*range*/) {
  PP_ASSERT(!leases_.empty());
  fresh_ = false;
  leases_.pop_front();
}

// The next task needs a pull: the weights at a barrier are outdated by now.
void LeaseSchedule::on_evaluated() {
  PP_ASSERT(!leases_.empty());
  fresh_ = false;
  leases_.pop_front();
}

}  // namespace pushpull

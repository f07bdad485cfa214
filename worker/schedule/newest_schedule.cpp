#include "worker/schedule/newest_schedule.h"

#include <algorithm>

#include "common/base/error.h"

namespace pushpull {

bool NewestSchedule::on_shares(const wire::State& state) {
  return shares_.assign(
      state, [this](int64_t /*from_step*/) { return clock_; }, true);
}

// Without weights, a worker is asking for the current step; that answer serves a new share, too.
bool NewestSchedule::gives_up(const PullAim& pull) const {
  return !(pull.is_newest() && clock_ < 0);
}

OwnedShare& NewestSchedule::own(const OwnedShare* share) {
  PP_ASSERT(share != nullptr);
  return shares_.all()[static_cast<size_t>(share - shares_.all().data())];
}

// Returns a share with an evaluation due: the servers have reached its barrier.
const OwnedShare* NewestSchedule::evaluation() const {
  const Barriers& barriers = shares_.plan().barriers;
  for (const OwnedShare& share : shares_.all()) {
    if (share.evaluated_through >= barriers.end_step) continue;
    if (barriers.next_evaluation(share.evaluated_through) <= newest_) return &share;
  }
  return nullptr;
}

// Returns a share that has not been computed with these weights, or null.
const OwnedShare* NewestSchedule::share_to_compute() const {
  for (const OwnedShare& share : shares_.all()) {
    if (share.range.size() > 0 && share.clock <= clock_) return &share;
  }
  return nullptr;
}

Schedule::Decision NewestSchedule::next() const {
  if (shares_.empty()) return {};
  const Barriers& barriers = shares_.plan().barriers;
  if (const std::optional<Task> task = wanted()) {
    if (task->kind == Task::kEvaluate && clock_ != task->step) {
      return {{}, PullAim{.versions = PullAim::kNewest, .clock = task->step, .at_barrier = true}};
    }
    return {*task, std::nullopt};
  }
  if (clock_ >= 0 && newest_ == barriers.end_step) {
    return {{Task::kDone, barriers.end_step, {}}, std::nullopt};
  }
  // the next task needs one step more than the weights in use, if those are done
  const int64_t clock = clock_ == newest_ ? newest_ + 1 : newest_;
  return {{}, PullAim{.versions = PullAim::kNewest, .clock = clock}};
}

std::optional<Task> NewestSchedule::wanted() const {
  if (clock_ < 0) return std::nullopt;
  const Barriers& barriers = shares_.plan().barriers;
  if (const OwnedShare* share = evaluation()) {
    return Task{Task::kEvaluate, barriers.next_evaluation(share->evaluated_through),
                shares_.chunks_of(*share)};
  }
  if (newest_ == barriers.end_step || clock_ != newest_) return std::nullopt;
  const OwnedShare* share = share_to_compute();
  if (share == nullptr) return std::nullopt;
  return Task{Task::kCompute, clock_, share->range};
}

std::optional<Task> NewestSchedule::upcoming() const {
  if (shares_.empty()) return std::nullopt;
  return Task{Task::kCompute, clock_ + 1, shares_.all().front().range};
}

// Servers may be a version apart. Then all of them are asked for exactly the lower one, which they
// still have, except a server that has moved on once more.
std::optional<PullAim> NewestSchedule::on_weights(const PulledWeights& weights) {
  if (weights.aim.at_barrier) {
    finish_barrier(weights);
    return std::nullopt;
  }
  if (weights.min_version != weights.max_version) {
    return PullAim{.clock = weights.min_version, .may_be_past = true};
  }
  clock_ = weights.min_version;
  newest_ = std::max(newest_, clock_);
  shares_.begin_at(clock_);
  return std::nullopt;
}

// If the servers are past the barrier, all its chunks were evaluated: the result of the share's
// previous worker has arrived. The weights received are then the newest ones, perhaps of two
// versions.
void NewestSchedule::finish_barrier(const PulledWeights& weights) {
  const int64_t barrier = weights.aim.clock;
  if (weights.at_barrier) {
    clock_ = barrier;
    return;
  }
  for (OwnedShare& share : shares_.all()) {
    const Barriers& barriers = shares_.plan().barriers;
    if (barriers.next_evaluation(share.evaluated_through) != barrier) continue;
    share.evaluated_through = barrier;
  }
  clock_ = -1;
}

void NewestSchedule::on_pushed(int64_t step, Range range) {
  OwnedShare& share = own(share_to_compute());
  PP_ASSERT(share.range == range && clock_ == step);
  share.clock = step + 1;
  share.evaluated = false;
}

void NewestSchedule::on_evaluated() {
  OwnedShare& share = own(evaluation());
  share.evaluated_through = shares_.plan().barriers.next_evaluation(share.evaluated_through);
}

}  // namespace pushpull

#include "worker/exchange/schedules.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/job/strategy.h"

namespace pushpull {

LockstepSchedule::LockstepSchedule(const WorkPlan& plan, bool subtrees)
    : subtrees_(subtrees), shares_(plan) {}

// A new share begins at the step of the weights in use: without this share no worker can be further
// ahead. If the run is, the servers' answers show it.
bool LockstepSchedule::on_shares(const wire::State& state) {
  const bool is_new = shares_.assign(state, [this](int64_t /*from_step*/) { return clock_; });
  if (is_new && shares_.in_group()) {
    group_begins_ = true;
    proposed_step_.reset();
    clock_ = -1;
    for (OwnedShare& share : shares_.all()) share.clock = -1;
  }
  return is_new;
}

void LockstepSchedule::begin_at(int64_t step) {
  group_begins_ = false;
  proposed_step_.reset();
  shares_.begin_at(step);
}

bool LockstepSchedule::weights_fit(const Task& task) const {
  return clock_ >= 0 && clock_ == task.step && averaged_ == shares_.plan().takes_averages(task);
}

std::optional<Task> LockstepSchedule::wanted() const {
  return group_begins_ ? std::nullopt : shares_.next_task();
}

// Only the servers know the current step. Some may be a step ahead; they still have the previous
// version, and a new worker needs one version of all slices. One that has taken the place of a lost
// server may be far behind: the others' pushes, which are kept, bring it to that version.
std::optional<PullAim> LockstepSchedule::on_weights(const PulledWeights& weights) {
  if (group_begins_) {
    const int64_t previous = shares_.plan().barriers.round_start(weights.max_version);
    if (weights.min_version < previous) return PullAim{.clock = previous, .may_be_past = true};
    proposed_step_ = weights.min_version;
    clock_ = weights.min_version == weights.max_version ? weights.min_version : -1;
    return std::nullopt;
  }
  if (weights.min_version != weights.max_version) {
    return PullAim{.clock = weights.min_version, .may_be_past = clock_ < 0};
  }
  clock_ = weights.min_version;
  averaged_ = shares_.plan().gets_averages(weights.aim.at_barrier);
  shares_.begin_at(clock_);
  return std::nullopt;
}

Schedule::Decision LockstepSchedule::next() const {
  const bool asks_for_step = group_begins_ ? !proposed_step_ : clock_ < 0 && !shares_.in_group();
  if (asks_for_step) {
    if (shares_.empty()) return {};
    return {{}, PullAim{.versions = PullAim::kNewest}};
  }
  if (group_begins_) return {};
  const std::optional<Task> task = wanted();
  if (!task) {
    if (shares_.empty()) return {};
    // the last push of an ended share is resent, like any other, while a pull waits for it
    const int64_t newest = shares_.newest_clock();
    if (clock_ < newest || averaged_) return {{}, PullAim{.clock = newest}};
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

bool NewestSchedule::on_shares(const wire::State& state) {
  const int64_t attempt = state.group().attempt();
  const bool anew = std::exchange(attempt_, attempt) != attempt;
  stage_ = state.group().stage();
  if (anew) {
    told_.reset();
    past_barrier_ = false;
    clock_ = -1;
  }
  const bool grown = shares_.assign(
      state, [this](int64_t /*from_step*/) { return clock_; }, true);
  return grown || anew;
}

// A change of shares begins another attempt, so the share is here. Other workers may evaluate its chunks.
void NewestSchedule::follow(const Task& task) {
  const WorkPlan& plan = shares_.plan();
  const auto is_mine = [&](const OwnedShare& share) { return share.range == task.range; };
  const bool evaluates = task.kind == Task::kEvaluate;
  const bool has_range =
      evaluates
          ? task.range.lo >= 0 && task.range.lo <= task.range.hi && task.range.hi <= plan.chunks
          : task.range.size() > 0 && std::ranges::any_of(shares_.all(), is_mine);
  const int64_t last = plan.barriers.end_step - (evaluates ? 0 : 1);
  if (!has_range || task.step < plan.barriers.start_step || task.step > last) {
    throw Error(ErrorCode::kProtocol,
                "[stages] stage 0 has named a task that the group does not have: step " +
                    std::to_string(task.step) + ", " + std::to_string(task.range.lo) + " to " +
                    std::to_string(task.range.hi));
  }
  told_ = task;
}

// Until it is told, a worker pulls the next weights: the answer also shows that its last push has arrived, which may
// be what the step waits for.
Schedule::Decision NewestSchedule::next_to_follow() const {
  if (told_ && weights_fit(*told_)) return {*told_, std::nullopt};
  if (told_) {
    return {{},
            PullAim{.versions = PullAim::kNewest,
                    .clock = told_->step,
                    .at_barrier = told_->kind == Task::kEvaluate}};
  }
  const bool has_next = clock_ >= 0 && !used_;
  if (has_next || newest_ == shares_.plan().barriers.end_step) return {};
  return {
      {},
      PullAim{.versions = PullAim::kNewest, .clock = clock_ == newest_ ? newest_ + 1 : newest_}};
}

bool NewestSchedule::weights_fit(const Task& task) const {
  if (clock_ < 0) return false;
  if (follows() && task.kind == Task::kCompute) return clock_ >= task.step;
  return clock_ == task.step && averaged_ == shares_.plan().takes_averages(task);
}

void NewestSchedule::take_to_follow(const PulledWeights& weights) {
  const bool same = weights.min_version == weights.max_version;
  used_ = false;
  newest_ = std::max(newest_, weights.min_version);
  past_barrier_ = weights.aim.at_barrier && !weights.at_barrier;
  if (weights.aim.at_barrier) {
    clock_ = weights.aim.clock;
  } else if (same) {
    clock_ = weights.min_version;
  } else {
    const bool enough = told_ && weights.min_version >= told_->step;
    clock_ = enough ? told_->step : -1;
  }
}

// Without weights, a worker is asking for the current step; that answer serves a new share, too. It may also be asking
// for the step after one whose evaluation its new share has to do: servers do not answer before that is done. One that
// follows keeps a pull that the task needs.
bool NewestSchedule::gives_up(const PullAim& pull) const {
  if (!pull.is_newest()) return true;
  if (!follows()) return clock_ >= 0 || pull.clock > newest_;
  return !told_ || told_->kind == Task::kEvaluate || pull.clock > told_->step;
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
  if (follows()) return next_to_follow();
  if (shares_.empty()) return {};
  const Barriers& barriers = shares_.plan().barriers;
  if (const std::optional<Task> task = wanted()) {
    if (task->kind == Task::kEvaluate && !weights_fit(*task)) {
      return {{}, PullAim{.versions = PullAim::kNewest, .clock = task->step, .at_barrier = true}};
    }
    return {*task, std::nullopt};
  }
  if (clock_ >= 0 && !averaged_ && newest_ == barriers.end_step) {
    return {{Task::kDone, barriers.end_step, {}}, std::nullopt};
  }
  // the next task needs one step more than the weights in use, if those are done
  const int64_t clock = clock_ == newest_ && !averaged_ ? newest_ + 1 : newest_;
  return {{}, PullAim{.versions = PullAim::kNewest, .clock = clock}};
}

std::optional<Task> NewestSchedule::wanted() const {
  if (follows()) return told_;
  if (clock_ < 0) return std::nullopt;
  const Barriers& barriers = shares_.plan().barriers;
  if (const OwnedShare* share = evaluation()) {
    return Task{Task::kEvaluate, barriers.next_evaluation(share->evaluated_through),
                shares_.chunks_of(*share)};
  }
  if (newest_ == barriers.end_step || clock_ != newest_ || averaged_) return std::nullopt;
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
  if (follows()) {
    take_to_follow(weights);
    return std::nullopt;
  }
  if (weights.aim.at_barrier) {
    finish_barrier(weights);
    return std::nullopt;
  }
  if (weights.min_version != weights.max_version) {
    return PullAim{.clock = weights.min_version, .may_be_past = true};
  }
  clock_ = weights.min_version;
  averaged_ = false;
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
    averaged_ = shares_.plan().gets_averages(true);
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
  if (follows()) {
    used_ = true;
    return told_.reset();
  }
  OwnedShare& share = own(share_to_compute());
  PP_ASSERT(share.range == range && clock_ == step);
  share.clock = step + 1;
  share.evaluated = false;
}

void NewestSchedule::on_evaluated() {
  if (follows()) {
    if (std::exchange(past_barrier_, false)) clock_ = -1;
    return told_.reset();
  }
  OwnedShare& share = own(evaluation());
  share.evaluated_through = shares_.plan().barriers.next_evaluation(share.evaluated_through);
}

// A group that has changed pushes again what its workers have pushed before.
bool StaleSchedule::on_shares(const wire::State& state) {
  const bool is_new = shares_.assign(state, [](int64_t from_step) { return from_step; });
  if (is_new) pushed_.reset();
  return is_new;
}

// Pulls between any two pushes, also between those of two shares, so that a lost worker has at most
// one push in flight.
bool StaleSchedule::weights_fit(const Task& task) const {
  if (clock_ < 0) return false;
  if (task.kind == Task::kEvaluate) {
    return (at_barrier_ || past_barrier_) && clock_ == task.step;
  }
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
                  .at_barrier = task->kind == Task::kEvaluate,
                  .after = pushed_}};
}

// If some server is past the barrier, the share's previous worker has passed it, and it evaluated
// first: only its last push has not reached all servers.
std::optional<PullAim> StaleSchedule::on_weights(const PulledWeights& weights) {
  fresh_ = !shares_.plan().gets_averages(weights.aim.at_barrier);
  clock_ = weights.aim.clock;
  at_barrier_ = weights.at_barrier;
  past_barrier_ = weights.aim.at_barrier && !at_barrier_ && shares_.in_group();
  if (past_barrier_) return std::nullopt;
  for (OwnedShare& share : shares_.all()) {
    if (weights.aim.at_barrier && !at_barrier_ && share.clock == clock_) share.evaluated = true;
  }
  return std::nullopt;
}

void StaleSchedule::on_pushed(int64_t step, Range range) {
  fresh_ = false;
  shares_.pushed(step, range);
  if (shares_.in_group()) pushed_ = {Task::kCompute, step, range};
}

// Takes new checkpoints, and leases that a lost worker has returned.
bool LeaseSchedule::on_shares(const wire::State& state) {
  for (const int64_t step : state.chosen_checkpoints()) plan_.barriers.choose(step);
  const bool anew = std::exchange(attempt_, state.group().attempt()) != state.group().attempt();
  if (anew) {
    leases_.clear();
    newest_lease_ = 0;
    clock_ = -1;
    pushed_.reset();
  }
  return on_leases(state.leases()) || anew;
}

bool LeaseSchedule::on_leases(const google::protobuf::RepeatedPtrField<wire::Lease>& leases) {
  for (const wire::Lease& lease : leases) {
    if (lease.number() <= newest_lease_ || lease.attempt() != attempt_ || !fits(lease)) continue;
    newest_lease_ = lease.number();
    attempt_ > 0 ? leases_.push_back(lease) : insert(lease);
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
  if (pull.attempt != attempt_) return true;
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
  if (!task)
    return {{}, PullAim{.versions = PullAim::kPerServer, .leases = true, .attempt = attempt_}};
  if (weights_fit(*task)) return {*task, std::nullopt};
  return {{},
          PullAim{.versions = PullAim::kPerServer,
                  .clock = task->step,
                  .at_barrier = task->kind == Task::kEvaluate,
                  .attempt = attempt_,
                  .after = pushed_}};
}

std::optional<PullAim> LeaseSchedule::on_weights(const PulledWeights& weights) {
  fresh_ = !plan_.gets_averages(weights.aim.at_barrier);
  clock_ = weights.aim.clock;
  at_barrier_ = weights.at_barrier;
  return std::nullopt;
}

void LeaseSchedule::on_pushed(int64_t step, Range range) {
  PP_ASSERT(!leases_.empty());
  fresh_ = false;
  leases_.pop_front();
  if (attempt_ > 0) pushed_ = {Task::kCompute, step, range};
}

// The next task needs a pull: the weights at a barrier are outdated by now.
void LeaseSchedule::on_evaluated() {
  PP_ASSERT(!leases_.empty());
  fresh_ = false;
  leases_.pop_front();
}

bool OwnWeightsSchedule::on_shares(const wire::State& state) {
  return shares_.assign(state, [](int64_t from_step) { return from_step; });
}

Schedule::Decision OwnWeightsSchedule::next() const {
  if (const std::optional<Task> task = wanted()) return {*task, std::nullopt};
  if (shares_.empty()) return {};
  return {{Task::kDone, shares_.plan().barriers.end_step, {}}, std::nullopt};
}

std::vector<Range> OwnWeightsSchedule::nodes(Range range) const {
  return maximal_subtrees(range, shares_.plan().micro_batches);
}

std::unique_ptr<Schedule> make_schedule(const Strategy& strategy, const WorkPlan& plan) {
  const StrategyTraits& traits = strategy.traits();
  if (traits.workers_update) return std::make_unique<OwnWeightsSchedule>(plan);
  if (traits.leases) return std::make_unique<LeaseSchedule>(plan);
  if (!traits.step_versions) return std::make_unique<StaleSchedule>(plan);
  if (!traits.whole_steps) return std::make_unique<NewestSchedule>(plan);
  return std::make_unique<LockstepSchedule>(plan, traits.same_bits);
}

}  // namespace pushpull

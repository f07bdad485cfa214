#include "ps/members/lease_pool.h"

#include <algorithm>

#include "common/job/job.h"
#include "ps/server/commit.h"

namespace pushpull {

LeasePool::LeasePool(const Barriers& barriers, const FollowedEvaluations& followed, int shares,
                     int64_t micro_batches, int64_t chunks, const Grants& grants)
    : barriers_(barriers),
      followed_(followed),
      shares_(shares),
      micro_batches_(micro_batches),
      chunks_(chunks),
      grants_(grants),
      step_(barriers.start_step),
      open_barrier_(barriers.start_step) {}

std::optional<wire::Lease> LeasePool::draw() {
  if (!first_.empty()) {
    wire::Lease lease = first_.front();
    first_.pop_front();
    return lease;
  }
  // No step begins at the end, even if an evaluation has moved it here.
  if (step_ >= barriers_.end_step || barriers_.is_held_back(step_)) return std::nullopt;
  // Steps behind a barrier wait until every server has passed it.
  if (step_ >= barriers_.next(open_barrier_)) return std::nullopt;
  if (!barriers_.may_begin(step_, followed_.evaluated())) return std::nullopt;
  // Servers keep the weights of one barrier, so its evaluation must end before the next one opens.
  if (step_ + 1 == barriers_.next(open_barrier_) && evaluating()) return std::nullopt;
  const Range range = share_range(share_, shares_, micro_batches_);
  wire::Lease lease;
  lease.set_step(step_);
  lease.set_lo(static_cast<int32_t>(range.lo));
  lease.set_hi(static_cast<int32_t>(range.hi));
  if (++share_ == shares_) {
    share_ = 0;
    ++step_;
  }
  return lease;
}

int64_t LeasePool::nearest_cut() const {
  const int64_t step = std::max(step_ + (share_ > 0 ? 1 : 0), open_barrier_ + 1);
  const bool may_be_open = barriers_.is_barrier(step) && !barriers_.checkpoint_due(step);
  return step + (may_be_open ? 1 : 0);
}

// An evaluation in first_ needs no check: it is drawn earlier.
bool LeasePool::evaluating() const {
  return std::any_of(holders_.begin(), holders_.end(), [](const auto& entry) {
    const auto& held = entry.second.held;
    return std::any_of(held.begin(), held.end(), [](const auto& l) { return l.evaluate(); });
  });
}

std::vector<wire::Lease> LeasePool::held(uint64_t incarnation) const {
  const Holder* holder = find(incarnation);
  return holder == nullptr ? std::vector<wire::Lease>() : holder->held;
}

bool LeasePool::draw_for(uint64_t incarnation, Holder& holder) {
  std::optional<wire::Lease> lease = draw();
  if (!lease) return false;
  lease->set_number(holder.next_number++);
  lease->clear_grant();  // of its previous holder
  if (!lease->evaluate()) {
    *lease->mutable_grant() =
        grants_.make(incarnation, {lease->lo(), lease->hi()}, {lease->step(), lease->step() + 1});
  }
  holder.held.push_back(*lease);
  return true;
}

std::vector<wire::Lease> LeasePool::grant(uint64_t incarnation) {
  Holder& holder = holders_[incarnation];
  while (holder.held.size() < kHeld && draw_for(incarnation, holder)) continue;
  relieve(incarnation);
  return holder.held;
}

void LeasePool::relieve(uint64_t incarnation) {
  const auto found = holders_.find(incarnation);
  if (found == holders_.end() || first_.empty()) return;
  const int64_t returned = first_.front().step();
  const std::vector<wire::Lease>& held = found->second.held;
  const bool waits = std::all_of(held.begin(), held.end(), [&](const wire::Lease& lease) {
    return barriers_.last(lease.step()) > returned;
  });
  if (!held.empty() && waits) draw_for(incarnation, found->second);
}

namespace {

int64_t order_of(const wire::Lease& lease) { return work_order(lease.step(), lease.evaluate()); }

}  // namespace

bool LeasePool::out_of_order(uint64_t incarnation) const {
  const Holder* holder = find(incarnation);
  return holder != nullptr && !std::ranges::is_sorted(holder->held, {}, order_of);
}

void LeasePool::pass_on(uint64_t incarnation, uint64_t to) {
  Holder holder = std::move(holders_.extract(incarnation).mapped());
  std::ranges::stable_sort(holder.held, {}, order_of);
  holder.next_number = 1;
  for (wire::Lease& lease : holder.held) lease.set_number(holder.next_number++);
  holders_[to] = std::move(holder);
}

void LeasePool::put_first(const wire::Lease& lease) {
  const auto place = std::ranges::upper_bound(first_, order_of(lease), {}, order_of);
  first_.insert(place, lease);
}

void LeasePool::open_barrier(int64_t step) {
  open_barrier_ = std::max(open_barrier_, step);
  if (!barriers_.evaluation_due(step)) return;
  for (int i = 0; i < shares_; ++i) {
    const Range chunks = share_range(i, shares_, chunks_);
    if (chunks.size() == 0) continue;
    wire::Lease lease;
    lease.set_step(step);
    lease.set_lo(static_cast<int32_t>(chunks.lo));
    lease.set_hi(static_cast<int32_t>(chunks.hi));
    lease.set_evaluate(true);
    put_first(lease);
  }
}

void LeasePool::finish_training(uint64_t incarnation, int64_t step, Range range) {
  Holder& holder = holders_[incarnation];
  const auto found = std::find_if(holder.held.begin(), holder.held.end(), [&](const auto& lease) {
    return !lease.evaluate() && lease.step() == step && lease.lo() == range.lo;
  });
  if (found == holder.held.end()) return;
  holder.last_finished = *found;
  holder.held.erase(found);
}

void LeasePool::finish_evaluation(uint64_t incarnation, int64_t step, int64_t chunk) {
  Holder& holder = holders_[incarnation];
  std::erase_if(holder.held, [&](const auto& lease) {
    return lease.evaluate() && lease.step() == step && lease.lo() <= chunk && chunk < lease.hi();
  });
}

const LeasePool::Holder* LeasePool::find(uint64_t incarnation) const {
  const auto found = holders_.find(incarnation);
  return found == holders_.end() ? nullptr : &found->second;
}

bool LeasePool::holds_evaluation(uint64_t incarnation, int64_t step, int64_t chunk) const {
  const Holder* holder = find(incarnation);
  return holder != nullptr &&
         std::any_of(holder->held.begin(), holder->held.end(), [&](const wire::Lease& lease) {
           return lease.evaluate() && lease.step() == step && lease.lo() <= chunk &&
                  chunk < lease.hi();
         });
}

bool LeasePool::has_drawn(uint64_t incarnation) const {
  const Holder* holder = find(incarnation);
  return holder != nullptr && holder->next_number > 1;
}

std::vector<uint64_t> LeasePool::holders(int64_t step) const {
  std::vector<uint64_t> found;
  for (const auto& [incarnation, holder] : holders_) {
    const bool holds = std::any_of(holder.held.begin(), holder.held.end(), [&](const auto& lease) {
      return lease.evaluate() || lease.step() <= step;
    });
    if (holds) found.push_back(incarnation);
  }
  return found;
}

void LeasePool::lose(uint64_t incarnation) {
  const auto found = holders_.find(incarnation);
  if (found == holders_.end()) return;
  const Holder& holder = found->second;
  if (holder.last_finished) put_first(*holder.last_finished);
  for (const wire::Lease& lease : holder.held) put_first(lease);
  holders_.erase(found);
}

LeasedWork::LeasedWork(const WorkSetup& setup)
    : WorkAssignment(setup),
      pool_(setup.barriers, setup.followed, setup.shares, setup.job.micro_batches(),
            setup.evaluations.chunks(), setup.grants) {}

void LeasedWork::on_commit(const Commit& commit) {
  const uint64_t unit = setup().groups.unit_of(commit.incarnation);
  // a group that has changed computes its leases again: all its workers go through the same ones
  if (commit.attempt != setup().groups.attempt_of(unit)) return;
  pool_.finish_training(unit, commit.step, commit.range);
}

void LeasedWork::on_barrier_open(int64_t step) { pool_.open_barrier(step); }

void LeasedWork::on_chunk(uint64_t unit, int64_t step, int64_t chunk, bool /*completes*/) {
  pool_.finish_evaluation(unit, step, chunk);
}

bool LeasedWork::lose(int64_t /*now_ms*/, uint64_t unit, bool /*reports*/) {
  pool_.lose(unit);
  return true;
}

std::string LeasedWork::overdue(int64_t now_ms) {
  if (!lacks_workers()) {
    lacking_since_ms_ = -1;
    return "";
  }
  if (lacking_since_ms_ < 0) lacking_since_ms_ = now_ms;
  if (now_ms - lacking_since_ms_ <= replacement_timeout_ms()) return "";
  if (is_paused() || !setup().groups.divides()) return paused_text();
  return "[job] no group of workers has been complete within replacement-timeout = " +
         seconds_text(replacement_timeout_ms()) + " s: it lacks " + setup().groups.missing();
}

void LeasedWork::assign() {
  for (const uint64_t unit : setup().groups.units()) {
    pool_.relieve(unit);
    in_order(unit);
  }
}

// A worker that waits for another server does not ask server 0 for leases.
void LeasedWork::add_to_worker_state(wire::State* state, const MemberInfo& worker) const {
  setup().groups.add_to_worker_state(state, worker.incarnation);
  for (wire::Lease& lease : signed_for(worker, pool_.held(unit_of(worker)))) {
    *state->add_leases() = std::move(lease);
  }
}

uint64_t LeasedWork::unit_of(const MemberInfo& worker) const {
  return worker.rank < 0 ? 0 : setup().groups.unit_of(worker.incarnation);
}

// The workers of a group learn of a lease at different times. They compute leases in the order of their
// numbers, so that none waits for a part of another lease than the others compute. This order is that of
// the work: a lease that waits behind a barrier never precedes one that the barrier waits for. So the group
// with the earliest unfinished lease can always go on.
uint64_t LeasedWork::in_order(uint64_t unit) {
  WorkGroups& groups = setup().groups;
  if (!groups.divides() || !pool_.out_of_order(unit)) return unit;
  const uint64_t renewed = groups.renew(unit);
  pool_.pass_on(unit, renewed);
  setup().out.state_changed();
  return renewed;
}

// The pool knows units; each worker of a group pushes its stage with a grant of its own.
std::vector<wire::Lease> LeasedWork::signed_for(const MemberInfo& worker,
                                                std::vector<wire::Lease> leases) const {
  const WorkGroups& groups = setup().groups;
  if (!groups.divides()) return leases;
  const int64_t attempt = groups.attempt_of(groups.unit_of(worker.incarnation));
  for (wire::Lease& lease : leases) {
    lease.set_attempt(attempt);
    if (!lease.has_grant()) continue;
    *lease.mutable_grant() =
        setup().grants.make(worker.incarnation, {lease.lo(), lease.hi()},
                            {lease.grant().from_step(), lease.grant().to_step()},
                            {groups.stage_of(worker.incarnation), attempt});
  }
  return leases;
}

std::vector<wire::Lease> LeasedWork::leases(const MemberInfo& worker) {
  const uint64_t unit = unit_of(worker);
  if (unit == 0) return {};
  if (is_paused()) return signed_for(worker, pool_.held(unit));
  pool_.grant(unit);
  return signed_for(worker, pool_.held(in_order(unit)));
}

}  // namespace pushpull

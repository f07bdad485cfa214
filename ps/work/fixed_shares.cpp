#include "ps/work/fixed_shares.h"

#include <algorithm>
#include <set>

namespace pushpull {

FixedShares::FixedShares(const WorkSetup& setup) : FixedShares(setup, setup.shares) {}

FixedShares::FixedShares(const WorkSetup& setup, int64_t needed_shares)
    : WorkAssignment(setup),
      needed_shares_(needed_shares),
      table_(setup.shares, setup.job.micro_batches(), setup.barriers.start_step) {
  if (setup.workers > setup.shares) {
    const int idle = setup.workers - setup.shares;
    setup.out.notice(counted(idle, "worker has", "workers have") +
                     " nothing to compute: a step has only " +
                     counted(setup.shares, "micro-batch", "micro-batches") +
                     (idle == 1 ? "; it waits as a spare" : "; they wait as spares"));
  }
  for (int i = 0; i < setup.shares; ++i) {
    // a term may begin without a worker that the one before has lost
    const MemberInfo* owner = setup.members.find_rank(wire::ROLE_WORKER, i);
    if (owner != nullptr) table_.give(static_cast<size_t>(i), owner->incarnation);
  }
}

void FixedShares::on_commit(const Commit& commit) {
  table_.advance(commit.range, commit.step + commit.steps);
}

bool FixedShares::lose(int64_t now_ms, const MemberInfo& worker) {
  return table_.vacate(worker.incarnation, now_ms);
}

void FixedShares::give(size_t index, uint64_t incarnation) {
  table_.give(index, incarnation);
  const Range range = table_.at(index).range;
  setup().out.notice("micro-batches " + std::to_string(range.lo) + " to " +
                     std::to_string(range.hi - 1) + " go to " +
                     setup().members.find(incarnation)->name());
  setup().out.state_changed();
}

void FixedShares::fill() {
  int64_t owned = table_.owned();
  for (size_t i = 0; i < table_.all().size(); ++i) {
    if (table_.at(i).owner != 0) continue;
    uint64_t best = table_.least_loaded(setup().members, 1);
    if (best == 0 && continues() && owned < needed_shares_) {
      best = table_.least_loaded(setup().members, INT64_MAX);
    }
    if (best == 0) continue;
    give(i, best);
    ++owned;
  }
}

// Under an evaluation the owners of shares evaluate.
std::vector<uint64_t> FixedShares::unfinished(int64_t step) const {
  std::set<uint64_t> found;
  for (const ShareOwner& share : table_.all()) {
    const uint64_t worker = share.owner != 0 ? share.owner : share.evaluator;
    if (worker != 0 && share.clock <= step) found.insert(worker);
  }
  return {found.begin(), found.end()};
}

bool FixedShares::may_evaluate(uint64_t incarnation, int64_t /*step*/, int64_t chunk) const {
  const int64_t chunks = setup().evaluations.chunks();
  for (int i = 0; i < setup().shares; ++i) {
    const Range mine = share_range(i, setup().shares, chunks);
    if (chunk < mine.lo || chunk >= mine.hi) continue;
    const ShareOwner& share = table_.all()[static_cast<size_t>(i)];
    return share.owner == incarnation || share.evaluator == incarnation;
  }
  return false;
}

bool FixedShares::has_work(uint64_t incarnation) const {
  return std::any_of(table_.all().begin(), table_.all().end(), [&](const ShareOwner& share) {
    return share.owner == incarnation || share.evaluator == incarnation;
  });
}

bool FixedShares::lacks_workers() const {
  // a share with an evaluator is one that the job goes on without
  return std::any_of(table_.all().begin(), table_.all().end(), [](const ShareOwner& share) {
    return share.owner == 0 && share.evaluator == 0;
  });
}

std::string FixedShares::overdue(int64_t now_ms) {
  for (const ShareOwner& share : table_.all()) {
    // a share with an evaluator is one that the job goes on without
    if (share.owner != 0 || share.evaluator != 0) continue;
    if (now_ms - share.vacant_since_ms <= replacement_timeout_ms()) continue;
    return "[job] no worker has come for micro-batches " + std::to_string(share.range.lo) + " to " +
           std::to_string(share.range.hi - 1) +
           " within replacement-timeout = " + seconds_text(replacement_timeout_ms()) + " s";
  }
  return "";
}

void FixedShares::add_to_worker_state(wire::State* state, const MemberInfo& worker) const {
  table_.add_assigned(state, worker.incarnation);
  const Barriers& barriers = setup().barriers;
  for (wire::Share& share : *state->mutable_assigned()) {
    const Range range{share.lo(), share.hi()};
    if (range.size() == 0) continue;
    // not from its first step on: under backup:B servers say which that is
    *share.mutable_grant() =
        setup().grants.make(worker.incarnation, range, {barriers.start_step, barriers.end_step});
  }
}

}  // namespace pushpull

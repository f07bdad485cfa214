#include "ps/members/share_table.h"

#include <algorithm>

namespace pushpull {

ShareTable::ShareTable(int shares, int64_t micro_batches, Range steps)
    : micro_batches_(micro_batches) {
  add(shares, steps);
}

void ShareTable::add(int shares, Range steps) {
  for (int i = 0; i < shares; ++i) {
    ShareOwner share;
    share.range = share_range(i, shares, micro_batches_);
    share.steps = steps;
    share.shares = shares;
    share.index = i;
    share.clock = steps.lo;
    share.from_step = steps.lo;
    shares_.push_back(share);
  }
}

void ShareTable::cut(int shares, int64_t from_step) {
  const int64_t end = shares_.back().steps.hi;
  for (ShareOwner& share : shares_) share.steps.hi = std::min(share.steps.hi, from_step);
  add(shares, {from_step, end});
}

void ShareTable::retire(int64_t step) {
  for (const ShareOwner& share : shares_) {
    if (share.steps.hi > step) continue;
    retired_.insert(share.owner);
    retired_.insert(share.earlier.begin(), share.earlier.end());
  }
  std::erase_if(shares_, [&](const ShareOwner& share) { return share.steps.hi <= step; });
}

// The owners of the step after a barrier evaluate its weights.
bool ShareTable::may_evaluate(uint64_t unit, int64_t step, int64_t chunk, int64_t chunks) const {
  if (step < shares_.front().steps.lo) return retired_.contains(unit);
  // A run that starts at its end has shares without steps.
  const int64_t of_step =
      std::clamp(step, shares_.front().steps.lo,
                 std::max(shares_.front().steps.lo, shares_.back().steps.hi - 1));
  return std::any_of(shares_.begin(), shares_.end(), [&](const ShareOwner& share) {
    const Range mine = share_range(share.index, share.shares, chunks);
    const bool of_share = of_step >= share.steps.lo && of_step < share.steps.hi;
    const bool its = (of_share || share.steps.size() == 0) && chunk >= mine.lo && chunk < mine.hi;
    // An earlier owner may have evaluated before it lost the share.
    return its && (share.owner == unit || share.evaluator == unit || share.earlier.contains(unit));
  });
}

void ShareTable::give(size_t index, uint64_t unit) {
  ShareOwner& share = shares_[index];
  share.owner = unit;
  share.evaluator = 0;
  share.vacant_since_ms = -1;
}

void ShareTable::advance(Range range, int64_t clock) {
  for (ShareOwner& share : shares_) {
    const bool its = share.range == range && clock > share.steps.lo && clock <= share.steps.hi;
    if (its) share.clock = std::max(share.clock, clock);
  }
}

int64_t ShareTable::step_to_repeat(const ShareOwner& share) const {
  return std::max(share.steps.lo, share.clock - 1);
}

// The next owner repeats a step: the owner may yet be lost before its last push has reached all
// servers.
void ShareTable::release(size_t index) {
  ShareOwner& share = shares_[index];
  share.earlier.insert(share.owner);
  share.owner = 0;
  share.from_step = step_to_repeat(share);
}

bool ShareTable::vacate(uint64_t unit, int64_t now_ms, bool reports) {
  bool had_some = false;
  for (ShareOwner& share : shares_) {
    if (!reports) share.earlier.erase(unit);
    if (share.evaluator == unit) share.evaluator = 0;
    if (share.owner != unit) continue;
    had_some = true;
    if (reports) share.earlier.insert(unit);
    share.owner = 0;
    share.vacant_since_ms = now_ms;
    share.from_step = step_to_repeat(share);
  }
  return had_some;
}

int64_t ShareTable::owned() const {
  return std::count_if(shares_.begin(), shares_.end(),
                       [](const ShareOwner& share) { return share.owner != 0; });
}

uint64_t ShareTable::least_loaded(const WorkGroups& groups, Range steps, int64_t below) const {
  uint64_t best = 0;
  for (const uint64_t unit : groups.units()) {
    const int64_t its = load(unit, steps);
    if (its >= below) continue;
    best = unit;
    below = its;
  }
  return best;
}

int64_t ShareTable::load(uint64_t unit, Range steps) const {
  return std::count_if(shares_.begin(), shares_.end(), [&](const ShareOwner& share) {
    return share.owner == unit && share.steps == steps;
  });
}

std::optional<size_t> ShareTable::surplus(const WorkGroups& groups) const {
  const Range steps = shares_.back().steps;
  const uint64_t idlest = least_loaded(groups, steps, INT64_MAX);
  if (idlest == 0) return std::nullopt;
  std::optional<size_t> found;
  int64_t most = load(idlest, steps) + 1;
  for (size_t i = 0; i < shares_.size(); ++i) {
    if (shares_[i].owner == 0 || load(shares_[i].owner, steps) <= most) continue;
    found = i;
    most = load(shares_[i].owner, steps);
  }
  return found;
}

void ShareTable::add_assigned(wire::State* state, uint64_t unit) const {
  for (const ShareOwner& share : shares_) {
    const bool owns = unit != 0 && share.owner == unit;
    if (!owns && (unit == 0 || share.evaluator != unit)) continue;
    wire::Share* assigned = state->add_assigned();
    // A share without micro-batches: only its chunks are evaluated.
    if (owns) assigned->set_lo(share.range.lo);
    if (owns) assigned->set_hi(share.range.hi);
    assigned->set_from_step(share.from_step);
    assigned->set_index(share.index);
    assigned->set_shares(share.shares);
    assigned->set_first_step(share.steps.lo);
    assigned->set_to_step(share.steps.hi);
  }
}

}  // namespace pushpull

#include "ps/work/share_table.h"

#include <algorithm>

namespace pushpull {

ShareTable::ShareTable(int shares, int64_t micro_batches, int64_t start_step)
    : start_step_(start_step) {
  for (int i = 0; i < shares; ++i) {
    ShareOwner share;
    share.range = share_range(i, shares, micro_batches);
    share.clock = start_step;
    share.from_step = start_step;
    shares_.push_back(share);
  }
}

void ShareTable::give(size_t index, uint64_t incarnation) {
  ShareOwner& share = shares_[index];
  share.owner = incarnation;
  share.evaluator = 0;
  share.vacant_since_ms = -1;
}

void ShareTable::advance(Range range, int64_t clock) {
  for (ShareOwner& share : shares_) {
    if (share.range == range) share.clock = std::max(share.clock, clock);
  }
}

bool ShareTable::vacate(uint64_t incarnation, int64_t now_ms) {
  bool had_some = false;
  for (ShareOwner& share : shares_) {
    if (share.evaluator == incarnation) share.evaluator = 0;
    if (share.owner != incarnation) continue;
    had_some = true;
    share.owner = 0;
    share.vacant_since_ms = now_ms;
    // its last push may not have reached every server; servers drop what they have
    share.from_step = std::max(start_step_, share.clock - 1);
  }
  return had_some;
}

int64_t ShareTable::owned() const {
  return std::count_if(shares_.begin(), shares_.end(),
                       [](const ShareOwner& share) { return share.owner != 0; });
}

uint64_t ShareTable::least_loaded(const Membership& members, int64_t below) const {
  uint64_t best = 0;
  for (const auto& [incarnation, member] : members.all()) {
    if (member.role != wire::ROLE_WORKER || member.rank < 0) continue;
    const uint64_t worker = incarnation;  // clang 14 captures no structured binding
    const auto load = std::count_if(shares_.begin(), shares_.end(),
                                    [worker](const ShareOwner& s) { return s.owner == worker; });
    if (load >= below) continue;
    best = incarnation;
    below = load;
  }
  return best;
}

void ShareTable::add_assigned(wire::State* state, uint64_t incarnation) const {
  for (size_t i = 0; i < shares_.size(); ++i) {
    const ShareOwner& share = shares_[i];
    const bool owns = share.owner == incarnation;
    if (!owns && share.evaluator != incarnation) continue;
    wire::Share* assigned = state->add_assigned();
    // without micro-batches: only its chunks are evaluated
    if (owns) assigned->set_lo(share.range.lo);
    if (owns) assigned->set_hi(share.range.hi);
    assigned->set_from_step(share.from_step);
    assigned->set_index(static_cast<int32_t>(i));
  }
}

}  // namespace pushpull

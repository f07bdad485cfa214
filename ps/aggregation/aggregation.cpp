#include "ps/aggregation/aggregation.h"

#include <algorithm>
#include <limits>

#include "common/base/error.h"

namespace pushpull {

bool Ledger::contains(int64_t step, Range range) const {
  if (step < floor_) return true;
  const auto found = open_.find(step);
  if (found == open_.end()) return false;
  return std::any_of(found->second.begin(), found->second.end(),
                     [&](const Range& r) { return r.lo < range.hi && range.lo < r.hi; });
}

void Ledger::add(int64_t step, Range range) {
  PP_ASSERT(range.lo >= 0 && range.lo < range.hi && range.hi <= leaves_);
  PP_ASSERT(!contains(step, range));
  open_[step].insert(range);
  while (true) {
    const auto first = open_.find(floor_);
    if (first == open_.end()) break;
    int64_t covered = 0;
    for (const Range& r : first->second) covered += r.size();
    if (covered < leaves_) break;
    open_.erase(first);
    ++floor_;
  }
}

void PushTracker::mark(int64_t number) {
  if (complete(number)) return;
  beyond_.insert(number);
  while (!beyond_.empty() && *beyond_.begin() == through_ + 1) {
    ++through_;
    beyond_.erase(beyond_.begin());
  }
}

SyncSums::SyncSums(const std::vector<int>& slices, int64_t micro_batches)
    : leaves_(micro_batches), open_(static_cast<int64_t>(slices.size())) {
  for (const int slice : slices) slices_[slice];
}

bool SyncSums::add(int slice, PartialSum part) {
  Slice& s = slices_.at(slice);
  const auto place =
      std::lower_bound(s.parts.begin(), s.parts.end(), part,
                       [](const PartialSum& a, const PartialSum& b) { return a.range < b.range; });
  const auto overlaps = [&](const PartialSum& other) {
    return other.range.lo < part.range.hi && part.range.lo < other.range.hi;
  };
  if (std::any_of(s.parts.begin(), s.parts.end(), overlaps)) return false;
  s.covered += part.range.size();
  s.parts.insert(place, std::move(part));
  if (s.covered < leaves_) return false;
  --open_;
  return true;
}

void SyncSums::clear(int slice) {
  Slice& s = slices_.at(slice);
  if (s.covered == leaves_) ++open_;
  s.parts.clear();
  s.covered = 0;
}

int64_t needed_floor(const Strategy& strategy, const Barriers& barriers, int64_t clock) {
  int64_t bound = std::numeric_limits<int64_t>::min();
  if (strategy.in_lockstep()) bound = clock;
  if (strategy.kind == StrategyKind::kSsp) bound = clock - strategy.staleness;
  return std::max(bound, barriers.last(clock));
}

}  // namespace pushpull

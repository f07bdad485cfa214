#include "ps/server/ledger.h"

#include <algorithm>

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

}  // namespace pushpull

#include "ps/aggregation/step_sums.h"

#include <algorithm>
#include <utility>

namespace pushpull {

StepSums::StepSums(const std::vector<int>& slices, int64_t micro_batches)
    : leaves_(micro_batches), open_(static_cast<int64_t>(slices.size())) {
  for (const int slice : slices) slices_[slice];
}

bool StepSums::add(int slice, PartialSum part) {
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

void StepSums::clear(int slice) {
  Slice& s = slices_.at(slice);
  if (s.covered == leaves_) ++open_;
  s.parts.clear();
  s.covered = 0;
}

}  // namespace pushpull

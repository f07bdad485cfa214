#include "worker/all_reduce/buckets.h"

#include "common/base/error.h"
#include "common/layout/slice_map.h"

namespace pushpull {

Buckets::Buckets(const SliceMap& map, int64_t first_bytes, int64_t max_bytes)
    : bucket_of_slice_(static_cast<size_t>(map.slices())) {
  for (int slice = map.slices() - 1; slice >= 0; --slice) {
    const Range e = map.elements(slice);
    const int64_t most =
        (count() <= 1 ? first_bytes : max_bytes) / static_cast<int64_t>(sizeof(float));
    if (elements_.empty() || elements_.back().hi - e.lo > most) {
      elements_.push_back(e);
      slices_in_.push_back(0);
    }
    elements_.back().lo = e.lo;
    ++slices_in_.back();
    bucket_of_slice_[static_cast<size_t>(slice)] = count() - 1;
  }
  begin();
}

void Buckets::begin() {
  missing_ = slices_in_;
  next_ = 0;
}

void Buckets::mark(int slice) {
  int& missing = missing_[static_cast<size_t>(bucket_of_slice_.at(static_cast<size_t>(slice)))];
  PP_ASSERT(missing > 0);
  --missing;
}

std::optional<int> Buckets::next() {
  if (next_ == count() || missing_[static_cast<size_t>(next_)] > 0) return std::nullopt;
  return next_++;
}

}  // namespace pushpull

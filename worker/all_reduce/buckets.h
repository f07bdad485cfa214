// Groups gradients for all-reduce. A bucket is a run of slices; buckets are sent in the order in
// which backward reaches them, from the last slice to the first, as in PyTorch's DDP (Li et al.,
// PyTorch Distributed, VLDB 2020). The order depends on the model alone, never on the gradient that
// is ready first, so that all workers sum the same buckets in the same order. Plain bookkeeping;
// single-threaded.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/layout/fixed_tree.h"

namespace pushpull {

class SliceMap;

class Buckets {
 public:
  // first_bytes: limit of the first bucket; small, so that communication starts early.
  // max_bytes: limit of the others.
  // A bucket holds at least one slice.
  Buckets(const SliceMap& map, int64_t first_bytes, int64_t max_bytes);

  int count() const { return static_cast<int>(elements_.size()); }
  // Returns the elements of a bucket. Bucket 0 is sent first.
  Range elements(int bucket) const { return elements_.at(static_cast<size_t>(bucket)); }

  // Begins a step: no slice is ready.
  void begin();
  // Records that the slice's gradient is final.
  void mark(int slice);
  // Returns the next bucket once all its slices are final, in order; nothing if it is not ready.
  std::optional<int> next();

 private:
  std::vector<Range> elements_;
  std::vector<int> bucket_of_slice_;
  std::vector<int> slices_in_;
  std::vector<int> missing_;
  int next_ = 0;
};

}  // namespace pushpull

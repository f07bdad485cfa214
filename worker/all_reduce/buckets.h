// How gradients are grouped for all-reduce: a bucket is a run of slices, and buckets go in the
// order in which backward reaches them, from the last slice to the first, as in PyTorch's DDP (Li
// et al., PyTorch Distributed, VLDB 2020). Which bucket is next depends on the model alone, never
// on which gradient was ready first, so that all workers sum the same. Plain bookkeeping; one
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/layout/slice_map.h"

namespace pushpull {

class Buckets {
 public:
  // first_bytes: of the first bucket, which has nothing to overlap with, so it should go early;
  // most_bytes: of the others. A bucket is at least one slice.
  Buckets(const SliceMap& map, int64_t first_bytes, int64_t most_bytes);

  int count() const { return static_cast<int>(elements_.size()); }
  // Elements of bucket `bucket`; bucket 0 goes first.
  Range elements(int bucket) const { return elements_.at(static_cast<size_t>(bucket)); }

  // A new step: nothing is ready.
  void begin();
  // The slice's gradient is final.
  void mark(int slice);
  // The next bucket, once all its slices are final and all buckets before it have gone.
  std::optional<int> next();

 private:
  std::vector<Range> elements_;
  std::vector<int> bucket_of_slice_;
  std::vector<int> slices_in_;
  std::vector<int> missing_;
  int next_ = 0;
};

}  // namespace pushpull

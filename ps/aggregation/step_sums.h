// The partial sums of one step, slice by slice, until they cover the whole tree. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ps/engine/slice_engine.h"

namespace pushpull {

// Parts are nodes of the tree over the step's leaves, so that any set of workers yields the same
// sum. A part that overlaps an earlier one is a duplicate and is dropped.
class StepSums {
 public:
  //   leaves: number of the tree's leaves: a step's micro-batches, or its shares.
  StepSums(const std::vector<int>& slices, int64_t leaves);

  int64_t leaves() const { return leaves_; }
  // Adds a part. Returns true if this completes the slice.
  bool add(int slice, PartialSum part);
  bool complete(int slice) const { return slices_.at(slice).covered == leaves_; }
  // Returns true if all slices are complete.
  bool all_complete() const { return open_ == 0; }
  const std::vector<PartialSum>& parts(int slice) const { return slices_.at(slice).parts; }
  // Calls visit(part) for all waiting parts.
  template <class Visit>
  void for_parts(const Visit& visit) {
    for (auto& [number, slice] : slices_) {
      for (PartialSum& part : slice.parts) visit(part);
    }
  }
  // Drops the parts of a slice after its update, for the next step.
  void clear(int slice);

 private:
  struct Slice {
    std::vector<PartialSum> parts;  // ascending
    int64_t covered = 0;
  };
  int64_t leaves_;
  int64_t open_;
  std::map<int, Slice> slices_;
};

}  // namespace pushpull

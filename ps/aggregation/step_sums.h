// The partial sums of one step, slice by slice, until they make up the whole tree. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ps/engine/slice_engine.h"

namespace pushpull {

// Parts are nodes of the tree over the step's leaves, so that any set of workers ends in the same
// sum. A part that overlaps one that is here is dropped: it has come twice.
class StepSums {
 public:
  // leaves: of the tree, micro-batches of a step or its shares.
  StepSums(const std::vector<int>& slices, int64_t leaves);

  int64_t leaves() const { return leaves_; }
  // Takes a part in. Returns true when the slice has become complete by it.
  bool add(int slice, PartialSum part);
  bool complete(int slice) const { return slices_.at(slice).covered == leaves_; }
  // All slices are complete.
  bool all_complete() const { return open_ == 0; }
  const std::vector<PartialSum>& parts(int slice) const { return slices_.at(slice).parts; }
  // visit(part) for all that wait.
  template <class Visit>
  void for_parts(const Visit& visit) {
    for (auto& [number, slice] : slices_) {
      for (PartialSum& part : slice.parts) visit(part);
    }
  }
  // Forgets the parts of a slice whose update is done: it waits for the next step's.
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

// When a push counts (DESIGN sections 2 and 4). Takes parts as they arrive, in any order, repeated
// or not, and says what has become complete. Knows no socket, clock or weights. One thread.
//
//   Ledger       which (step, micro-batches) this server has: each counts once, whoever computed
//   it. PushTracker  which pushes of one worker are complete, for acknowledgements. SyncSums the
//   partial sums of the current step, until they make up the whole tree. needed_floor when a pull
//   may be answered: bounded staleness (Ho et al., NIPS 2013; Petuum Bosen) and
//                barriers, in terms of the ledger's floor alone.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "common/job/barriers.h"
#include "common/job/job.h"
#include "ps/engine/shard.h"

namespace pushpull {

// Micro-batches that count at this server. `floor()` is the first step that is not wholly in: every
// update of the steps below it has been taken in.
class Ledger {
 public:
  Ledger(int64_t first_step, int64_t micro_batches) : floor_(first_step), leaves_(micro_batches) {}

  int64_t floor() const { return floor_; }
  // True when any of the range is in already.
  bool contains(int64_t step, Range range) const;
  // PP_ASSERTs that none of it was in.
  void add(int64_t step, Range range);

 private:
  int64_t floor_;
  int64_t leaves_;
  std::map<int64_t, std::set<Range>> open_;  // steps from floor_ on with something in
};

// Pushes of one worker's life, numbered 1, 2, ...
class PushTracker {
 public:
  bool complete(int64_t number) const { return number <= through_ || beyond_.contains(number); }
  void mark(int64_t number);
  // All pushes up to this number are complete.
  int64_t through() const { return through_; }

 private:
  int64_t through_ = 0;
  std::set<int64_t> beyond_;
};

// Partial sums of one step, by slice. Repeated parts are dropped; parts are nodes of the tree over
// the micro-batches, so that any set of workers ends in the same sum.
class SyncSums {
 public:
  SyncSums(const std::vector<int>& slices, int64_t micro_batches);

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

// The floor that a pull at `clock` needs: max(clock - staleness, last barrier at or before clock).
int64_t needed_floor(const Strategy& strategy, const Barriers& barriers, int64_t clock);

}  // namespace pushpull

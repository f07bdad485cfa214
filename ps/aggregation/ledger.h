// The micro-batches that have counted at a server: each counts once, whoever has computed it. Knows
// no socket, clock or weights. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "common/layout/fixed_tree.h"

namespace pushpull {

class Ledger {
 public:
  // micro_batches: of a step.
  Ledger(int64_t first_step, int64_t micro_batches) : floor_(first_step), leaves_(micro_batches) {}

  // The floor: the first step of which some micro-batch has not counted yet. All updates of the
  // steps below it are in the weights.
  int64_t floor() const { return floor_; }
  // True when any of the range has counted.
  bool contains(int64_t step, Range range) const;
  // PP_ASSERTs that none of it has.
  void add(int64_t step, Range range);

 private:
  int64_t floor_;
  int64_t leaves_;
  std::map<int64_t, std::set<Range>> open_;  // steps from floor_ on of which some have counted
};

}  // namespace pushpull

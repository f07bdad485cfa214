// The micro-batches that have counted at a server. Each counts once, no matter which worker
// computed it. Has no weights and does no I/O. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "common/layout/fixed_tree.h"

namespace pushpull {

class Ledger {
 public:
  //   micro_batches: per step.
  Ledger(int64_t first_step, int64_t micro_batches) : floor_(first_step), leaves_(micro_batches) {}

  // The first step with a micro-batch that has not counted. The weights contain all updates of the
  // steps below it.
  int64_t floor() const { return floor_; }
  // Returns true if any micro-batch of the range has counted.
  bool contains(int64_t step, Range range) const;
  // Counts the range. PP_ASSERTs that no part of it has counted.
  void add(int64_t step, Range range);

 private:
  int64_t floor_;
  int64_t leaves_;
  std::map<int64_t, std::set<Range>> open_;  // from floor_ on, ranges that have counted
};

}  // namespace pushpull

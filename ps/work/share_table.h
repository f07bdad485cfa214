// The shares of a step, for strategies under which each worker computes the same micro-batches in
// every step: who owns each, how far its pushes are, and since when nobody owns it. Part of the
// coordinator's state machine; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/layout/fixed_tree.h"
#include "common/net/message.h"
#include "ps/members/membership.h"

namespace pushpull {

struct ShareOwner {
  Range range;             // micro-batches of every step
  uint64_t owner = 0;      // incarnation; 0: nobody
  uint64_t evaluator = 0;  // who evaluates its chunks while nobody owns it; 0: nobody
  int64_t clock = 0;       // steps of it that have reached server 0
  int64_t from_step = 0;   // first step that the owner computes
  int64_t vacant_since_ms = -1;
};

class ShareTable {
 public:
  // micro_batches: of a step.
  ShareTable(int shares, int64_t micro_batches, int64_t start_step);

  const std::vector<ShareOwner>& all() const { return shares_; }
  ShareOwner& at(size_t index) { return shares_[index]; }
  void give(size_t index, uint64_t incarnation);
  // Server 0 has the pushes of this range up to `clock`.
  void advance(Range range, int64_t clock);
  // The worker is gone: nobody owns its shares now. True: it had some.
  bool vacate(uint64_t incarnation, int64_t now_ms);

  int64_t owned() const;
  // The worker with a rank that owns the fewest shares, fewer than `below`; 0: nobody.
  uint64_t least_loaded(const Membership& members, int64_t below) const;
  // Adds those that this worker computes, or only evaluates, to its state.
  void add_assigned(wire::State* state, uint64_t incarnation) const;

 private:
  int64_t start_step_;
  std::vector<ShareOwner> shares_;
};

}  // namespace pushpull

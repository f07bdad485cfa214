// The shares of a step, for strategies under which each worker computes the same micro-batches in
// every step: who owns each, how far its pushes are, and since when nobody owns it. Part of the
// coordinator's state machine; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "common/layout/fixed_tree.h"
#include "common/net/message.h"
#include "ps/members/membership.h"

namespace pushpull {

struct ShareOwner {
  Range range;             // micro-batches of each of its steps
  Range steps;             // that have this share
  int shares = 1;          // that these steps are cut into
  int index = 0;           // among those
  uint64_t owner = 0;      // incarnation; 0: nobody
  uint64_t evaluator = 0;  // who evaluates its chunks while nobody owns it; 0: nobody
  int64_t clock = 0;       // steps of it that have reached server 0
  int64_t from_step = 0;   // first step that the owner computes
  int64_t vacant_since_ms = -1;
  std::set<uint64_t> earlier = {};  // owners that have given it away, and may still report on it
};

class ShareTable {
 public:
  // micro_batches: of a step. steps: of the run.
  ShareTable(int shares, int64_t micro_batches, Range steps);

  // From this step on each step is cut into more shares; those before it stay as they are. New
  // shares have no owner yet.
  void cut(int shares, int64_t from_step);
  // Steps below this one are done everywhere: their shares are gone.
  void retire(int64_t step);
  // Steps that are not done yet are cut in two ways.
  bool in_transition() const { return shares_.front().shares != shares_.back().shares; }
  // That the last step is cut into.
  int shares() const { return shares_.back().shares; }

  const std::vector<ShareOwner>& all() const { return shares_; }
  ShareOwner& at(size_t index) { return shares_[index]; }
  void give(size_t index, uint64_t incarnation);
  // Server 0 has the pushes of this range up to `clock`.
  void advance(Range range, int64_t clock);
  // Its owner computes it no longer, and lives: nobody owns it now.
  void release(size_t index);
  // The worker is gone: nobody owns its shares now. True: it had some.
  bool vacate(uint64_t incarnation, int64_t now_ms);

  int64_t owned() const;
  // The worker with a rank that owns the fewest shares of these steps, fewer than `below`; 0: nobody.
  uint64_t least_loaded(const Membership& members, Range steps, int64_t below) const;
  // The worker may say what this chunk of the evaluation at `step` has come to.
  bool may_evaluate(uint64_t incarnation, int64_t step, int64_t chunk, int64_t chunks) const;
  // A share of whoever has two more than the least loaded worker; none: shares are even. Not in
  // transition.
  std::optional<size_t> surplus(const Membership& members) const;
  // Adds those that this worker computes, or only evaluates, to its state.
  void add_assigned(wire::State* state, uint64_t incarnation) const;

 private:
  void add(int shares, Range steps);
  int64_t load(uint64_t incarnation, Range steps) const;
  // The step from which another worker must compute a share: its last push may not have reached
  // every server; servers drop what they have.
  int64_t step_to_repeat(const ShareOwner& share) const;

  const int64_t micro_batches_;
  std::vector<ShareOwner> shares_;  // by their first step, then by index
  std::set<uint64_t> retired_;      // owners of shares that are gone, who may still report on them
};

}  // namespace pushpull

// The shares of a step, for strategies under which each worker computes the same micro-batches in
// every step: the owner of each, the progress of its pushes, and how long it has had no owner. Part
// of the coordinator's state machine. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "common/layout/fixed_tree.h"
#include "common/net/message.h"
#include "ps/members/work_groups.h"

namespace pushpull {

struct ShareOwner {
  Range range;             // micro-batches of each step
  Range steps;             // steps divided this way
  int shares = 1;          // shares in each of these steps
  int index = 0;           // index among these shares
  uint64_t owner = 0;      // unit (work_groups.h); 0 if there is none
  uint64_t evaluator = 0;  // evaluates the chunks of a share without owner; 0 if none does
  int64_t clock = 0;       // its pushes of earlier steps have reached server 0
  int64_t from_step = 0;   // first step that the owner computes
  int64_t vacant_since_ms = -1;
  std::set<uint64_t> earlier = {};  // former owners that may still report its chunks
};

class ShareTable {
 public:
  //   micro_batches: per step. steps: of the run.
  ShareTable(int shares, int64_t micro_batches, Range steps);

  // Cuts each step from `from_step` on into more shares, without owners. Earlier steps keep their
  // shares.
  void cut(int shares, int64_t from_step);
  // Removes the shares of steps below this one, which are done on all servers.
  void retire(int64_t step);
  // Returns true while unfinished steps are cut in two ways.
  bool in_transition() const { return shares_.front().shares != shares_.back().shares; }
  // Returns the number of shares of the last step.
  int shares() const { return shares_.back().shares; }

  const std::vector<ShareOwner>& all() const { return shares_; }
  ShareOwner& at(size_t index) { return shares_[index]; }
  void give(size_t index, uint64_t unit);
  // Notes that server 0 has the pushes of this range for steps below `clock`.
  void advance(Range range, int64_t clock);
  // Takes the share from its owner, which is still a member.
  void release(size_t index);
  // Takes all shares from a lost unit. Returns true if it had some.
  //   reports: a worker of it is left that may still report evaluations.
  bool vacate(uint64_t unit, int64_t now_ms, bool reports = false);

  int64_t owned() const;
  // Returns the unit with the fewest shares of these steps, fewer than `below`, or 0.
  uint64_t least_loaded(const WorkGroups& groups, Range steps, int64_t below) const;
  // Returns true if the unit may report the result of this chunk of the evaluation at `step`.
  bool may_evaluate(uint64_t unit, int64_t step, int64_t chunk, int64_t chunks) const;
  // Returns a share of the unit with the most shares if it has at least two more than the least
  // loaded one. Must not be called in transition.
  std::optional<size_t> surplus(const WorkGroups& groups) const;
  // Adds to a worker's State the shares that its unit computes or only evaluates.
  void add_assigned(wire::State* state, uint64_t unit) const;

 private:
  void add(int shares, Range steps);
  int64_t load(uint64_t unit, Range steps) const;
  // Returns the step from which a new owner must compute the share: the last push may not have
  // reached every server. Servers drop pushes that they have.
  int64_t step_to_repeat(const ShareOwner& share) const;

  const int64_t micro_batches_;
  std::vector<ShareOwner> shares_;  // ordered by first step, then by index
  std::set<uint64_t> retired_;      // former owners of removed shares; may still report
};

}  // namespace pushpull

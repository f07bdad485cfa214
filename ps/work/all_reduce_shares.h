// Fixed shares whose owners exchange sums among themselves (allreduce): each learns where the
// others are. Part of the coordinator's state machine; one thread.
#pragma once

#include "ps/work/fixed_shares.h"

namespace pushpull {

class AllReduceShares final : public FixedShares {
 public:
  explicit AllReduceShares(const WorkSetup& setup) : FixedShares(setup) {}

  // Workers do not ask a server before they go on: they pause where all know that a checkpoint is due.
  int64_t nearest_cut() const override {
    return setup().barriers.next_checkpoint(setup().progress.floor());
  }
  void add_to_worker_state(wire::State* state, const MemberInfo& worker) const override;
  // Workers wait for each other, and for server 0 once kMostReports of their losses have no answer: none
  // is kMostReports + 2 ahead of the slowest, which is as far ahead of server 0. So near to a step that
  // is held servers put losses off.
  int64_t first_unbegun_step() const override {
    return setup().progress.floor() + 3 * (kMostReports + 2);
  }
};

}  // namespace pushpull

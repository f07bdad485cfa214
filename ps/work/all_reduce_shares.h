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
};

}  // namespace pushpull

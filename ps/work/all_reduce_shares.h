// Fixed shares whose owners exchange sums among themselves (allreduce): each learns where the
// others are. Part of the coordinator's state machine; one thread.
#pragma once

#include "ps/work/fixed_shares.h"

namespace pushpull {

class AllReduceShares final : public FixedShares {
 public:
  explicit AllReduceShares(const WorkSetup& setup) : FixedShares(setup) {}

  void add_to_worker_state(wire::State* state, const MemberInfo& worker) const override;
};

}  // namespace pushpull

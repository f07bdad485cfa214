// Fixed shares with owners that exchange sums among themselves (allreduce): each owner learns the
// addresses of the others. Part of the coordinator's state machine. Not thread-safe.
#pragma once

#include "ps/work/fixed_shares.h"

namespace pushpull {

class AllReduceShares final : public FixedShares {
 public:
  explicit AllReduceShares(const WorkSetup& setup) : FixedShares(setup) {}

  // Workers do not ask a server between steps: they pause at the next regular checkpoint.
  int64_t nearest_cut() const override {
    return setup().barriers.next_checkpoint(setup().committed.floor());
  }
  void add_to_worker_state(wire::State* state, const MemberInfo& worker) const override;
  // Workers wait for each other, and for server 0 once kMaxReports of their loss reports are
  // unanswered. A worker is therefore less than kMaxReports + 2 steps ahead of the slowest one,
  // which is as close to server 0. Within that distance of a held step, servers put off losses.
  int64_t first_unbegun_step() const override {
    return setup().committed.floor() + 3 * (kMaxReports + 2);
  }
};

}  // namespace pushpull

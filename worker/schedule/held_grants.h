// The grants that a worker has been given and not used up: servers ask for one with each push. One
// thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>

#include "common/layout/fixed_tree.h"
#include "common/net/message.h"

namespace pushpull {

class HeldGrants {
 public:
  // Of the shares that are assigned from here on.
  void on_state(const wire::State& state);
  // Of leases; they come again and again until they are pushed.
  void on_leases(const google::protobuf::RepeatedPtrField<wire::Lease>& leases);

  // The grant for these micro-batches of `step`; an empty one where none is held.
  wire::Grant of(int64_t step, Range micro_batches) const;

 private:
  std::map<int64_t, wire::Share> shares_;  // by first micro-batch
  std::deque<wire::Lease> leases_;         // the newest ones
  int64_t newest_lease_ = 0;
};

}  // namespace pushpull

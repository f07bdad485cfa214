#include "ps/work/all_reduce_shares.h"

namespace pushpull {

void AllReduceShares::add_to_worker_state(wire::State* state, const MemberInfo& worker) const {
  FixedShares::add_to_worker_state(state, worker);
  if (!has_work(worker.incarnation)) return;  // a worker without work needs no peers
  for (const ShareOwner& share : table().all()) {
    const MemberInfo* owner = setup().members.find(share.owner);
    state->add_peer_endpoints(owner == nullptr ? "" : owner->peer_endpoint);
    state->add_peer_incarnations(owner == nullptr ? 0 : share.owner);
  }
}

}  // namespace pushpull

#include "worker/schedule/held_grants.h"

#include <algorithm>

namespace pushpull {

namespace {

constexpr size_t kMostLeases = 16;  // far more than a worker holds at a time

}  // namespace

void HeldGrants::on_state(const wire::State& state) {
  shares_.clear();
  for (const wire::Share& share : state.assigned()) {
    if (share.has_grant()) shares_[share.lo()] = share;
  }
}

void HeldGrants::on_leases(const google::protobuf::RepeatedPtrField<wire::Lease>& leases) {
  for (const wire::Lease& lease : leases) {
    if (lease.number() <= newest_lease_) continue;
    newest_lease_ = lease.number();
    if (!lease.has_grant()) continue;
    leases_.push_back(lease);
    if (leases_.size() > kMostLeases) leases_.pop_front();
  }
}

wire::Grant HeldGrants::of(int64_t step, Range micro_batches) const {
  const auto share = shares_.find(micro_batches.lo);
  if (share != shares_.end() && share->second.hi() == micro_batches.hi) {
    return share->second.grant();
  }
  const auto lease = std::ranges::find_if(leases_, [&](const wire::Lease& held) {
    return held.step() == step && Range{held.lo(), held.hi()} == micro_batches;
  });
  return lease == leases_.end() ? wire::Grant{} : lease->grant();
}

}  // namespace pushpull

// Schedule of workers that draw leases from the pool of server 0 (async). A lease is a part of a
// step or of an evaluation; it is computed once, on weights pulled after the last push. Leases are
// computed by work_order: a server may wait for a lease of an earlier step before it hands out the
// weights for a later one. Servers decide when they apply a push.
#pragma once

#include <deque>

#include "worker/schedule/schedule.h"
#include "worker/schedule/share_list.h"

namespace pushpull {

class LeaseSchedule : public Schedule {
 public:
  explicit LeaseSchedule(const WorkPlan& plan) : plan_(plan) {}

  bool on_shares(const wire::State& state) override;
  bool on_leases(const google::protobuf::RepeatedPtrField<wire::Lease>& leases) override;
  std::optional<PullAim> on_weights(const PulledWeights& weights) override;
  void on_weights_released() override { clock_ = -1; }
  void on_pushed(int64_t step, Range range) override;
  void on_evaluated() override;

  Decision next() const override;
  std::optional<Task> wanted() const override;
  bool weights_fit(const Task& task) const override;
  std::optional<Task> upcoming() const override;
  bool gives_up(const PullAim& pull) const override;
  wire::Grant grant(Range /*range*/) const override {
    return leases_.empty() ? wire::Grant{} : leases_.front().grant();
  }

  bool acknowledged_is_applied() const override { return true; }

  bool draws_leases() const override { return true; }
  int64_t newest_lease() const override { return newest_lease_; }

 private:
  bool fits(const wire::Lease& lease) const;
  void insert(const wire::Lease& lease);

  WorkPlan plan_;
  std::deque<wire::Lease> leases_;
  int64_t newest_lease_ = 0;
  int64_t clock_ = -1;       // for which the weights in use were pulled; -1 if there are none
  bool at_barrier_ = false;  // the weights are exactly those at barrier clock_
  bool fresh_ = false;       // no push or evaluation since they were pulled
};

}  // namespace pushpull

// Schedule of ssp:S (Ho et al., More Effective Distributed ML via a Stale Synchronous Parallel
// Parameter Server, NIPS 2013): fixed shares; each server counts its updates separately, and
// weights may lack the newest updates of other workers. The servers keep the bound: they answer a
// pull for clock c once every worker's clock is at least c - S.
#pragma once

#include "worker/schedule/schedule.h"
#include "worker/schedule/share_list.h"

namespace pushpull {

class StaleSchedule : public Schedule {
 public:
  explicit StaleSchedule(const WorkPlan& plan) : shares_(plan) {}

  bool on_shares(const wire::State& state) override;
  std::optional<PullAim> on_weights(const PulledWeights& weights) override;
  void on_weights_released() override { clock_ = -1; }
  void on_pushed(int64_t step, Range range) override;
  void on_evaluated() override { shares_.evaluated(); }

  Decision next() const override;
  std::optional<Task> wanted() const override { return shares_.next_task(); }
  bool weights_fit(const Task& task) const override;
  std::optional<Task> upcoming() const override { return shares_.upcoming(); }
  bool gives_up(const PullAim& /*pull*/) const override { return true; }
  bool idle() const override { return shares_.empty(); }
  wire::Grant grant(Range range) const override { return shares_.grant(range); }

  bool acknowledged_is_applied() const override { return true; }

 private:
  ShareList shares_;
  int64_t clock_ = -1;       // for which the weights in use were pulled; -1 if there are none
  bool at_barrier_ = false;  // the weights are exactly those at barrier clock_
  bool fresh_ = false;       // no push since they were pulled
};

}  // namespace pushpull

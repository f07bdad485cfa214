// The schedules of a worker, one for each way in which servers count pushes.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "worker/exchange/schedule.h"
#include "worker/exchange/share_list.h"

namespace pushpull {

struct Strategy;

// Schedule of whole steps in lockstep (sync, local:H). All slices have one version per step. A
// worker computes each of its shares on exactly the version of that step, and the next version
// contains every micro-batch of it. A new worker first asks the servers for their current step. So do
// all members of a group that has changed, and begin at the lowest step: slices of the others may be
// one further, and servers still have their previous version.
class LockstepSchedule : public Schedule {
 public:
  // subtrees: a share is pushed as the maximal subtrees of the fixed tree that cover it, so that
  // servers can sum along that tree (P1). If false, it is pushed as one sum.
  LockstepSchedule(const WorkPlan& plan, bool subtrees);

  bool on_shares(const wire::State& state) override;
  std::optional<PullAim> on_weights(const PulledWeights& weights) override;
  void on_weights_released() override {}
  void on_pushed(int64_t step, Range range) override { shares_.pushed(step, range); }
  void on_evaluated() override { shares_.evaluated(); }

  Decision next() const override;
  std::optional<int64_t> proposed_step() const override { return proposed_step_; }
  void begin_at(int64_t step) override;
  std::optional<Task> wanted() const override;
  bool weights_fit(const Task& task) const override;
  std::optional<Task> upcoming() const override { return shares_.upcoming(); }
  std::optional<PullAim> pull_after(int64_t step) const override;
  bool gives_up(const PullAim& pull) const override { return pull.versions != PullAim::kNewest; }
  bool idle() const override { return shares_.empty(); }
  wire::Grant grant(Range range) const override { return shares_.grant(range); }

  int64_t steps_from(int64_t step) const override;
  std::vector<Range> nodes(Range range) const override;
  bool acknowledged_is_applied() const override { return false; }

 private:
  const bool subtrees_;
  ShareList shares_;
  int64_t clock_ = -1;         // of the weights in use; -1 if there are none
  bool averaged_ = false;      // they are the averages at that barrier
  bool group_begins_ = false;  // the group has changed, and not agreed on a step yet
  std::optional<int64_t> proposed_step_;
};

// Schedule of backup:B (Chen et al., Revisiting Distributed Synchronous SGD, arXiv 1604.00981). A
// step may end without this worker, so it always computes on the newest version. It still evaluates
// its chunks of every evaluation that it has passed. In a group, stage 0 does so, and the others compute the tasks
// that it tells them. If servers have reached a later version meanwhile, the step's set of pushes was chosen without
// this group, and will drop this one: then any weights do.
class NewestSchedule : public Schedule {
 public:
  explicit NewestSchedule(const WorkPlan& plan) : shares_(plan) {}

  bool on_shares(const wire::State& state) override;
  std::optional<PullAim> on_weights(const PulledWeights& weights) override;
  void on_weights_released() override { clock_ = -1; }
  void on_pushed(int64_t step, Range range) override;
  void on_evaluated() override;

  Decision next() const override;
  std::optional<Task> wanted() const override;
  bool weights_fit(const Task& task) const override;
  std::optional<Task> upcoming() const override;
  bool is_past_barrier() const override { return past_barrier_; }
  bool gives_up(const PullAim& pull) const override;
  bool idle() const override { return shares_.empty(); }
  wire::Grant grant(Range range) const override { return shares_.grant(range); }

  bool leads() const override { return attempt_ > 0 && stage_ == 0; }
  bool awaits_task() const override { return follows() && !told_; }
  void follow(const Task& task) override;

  bool acknowledged_is_applied() const override { return false; }

 private:
  bool follows() const { return attempt_ > 0 && stage_ > 0; }
  Decision next_to_follow() const;
  void take_to_follow(const PulledWeights& weights);
  const OwnedShare* evaluation() const;
  const OwnedShare* share_to_compute() const;
  OwnedShare& own(const OwnedShare* share);
  void finish_barrier(const PulledWeights& weights);

  ShareList shares_;
  int64_t clock_ = -1;     // of the weights in use; -1 if there are none
  bool averaged_ = false;  // they are the averages at that barrier
  int64_t newest_ = 0;     // newest version received

  // in a group
  int64_t attempt_ = 0;  // of the group; 0 without one
  int stage_ = 0;
  std::optional<Task> told_;   // by stage 0, and not done
  bool used_ = false;          // the weights, by a push
  bool past_barrier_ = false;  // servers are past that of told_
};

// Schedule of ssp:S (Ho et al., More Effective Distributed ML via a Stale Synchronous Parallel
// Parameter Server, NIPS 2013): fixed shares; each server counts its updates separately, and
// weights may lack the newest updates of other workers. The servers keep the bound: they answer a
// pull for clock c once every worker's clock is at least c - S.
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
  bool is_past_barrier() const override { return past_barrier_; }
  std::optional<Task> upcoming() const override { return shares_.upcoming(); }
  bool gives_up(const PullAim& /*pull*/) const override { return true; }
  bool idle() const override { return shares_.empty(); }
  wire::Grant grant(Range range) const override { return shares_.grant(range); }

  bool acknowledged_is_applied() const override { return true; }

 private:
  ShareList shares_;
  int64_t clock_ = -1;          // for which the weights in use were pulled; -1 if there are none
  bool at_barrier_ = false;     // the weights are exactly those at barrier clock_
  bool past_barrier_ = false;   // a server is past it, and a group has to evaluate there
  bool fresh_ = false;          // no push since they were pulled, and they are no averages
  std::optional<Task> pushed_;  // last, by the group as it is
};

// Schedule of workers that draw leases from the pool of server 0 (async). A lease is a part of a
// step or of an evaluation; it is computed once, on weights pulled after the last push. Leases are
// computed by work_order: a server may wait for a lease of an earlier step before it hands out the
// weights for a later one. Servers decide when they apply a push. A group of workers computes them in
// the order of their numbers (ps/members/lease_pool.h), and begins anew when it changes.
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
  int64_t attempt_ = 0;  // of the group; 0 without one
  std::deque<wire::Lease> leases_;
  int64_t newest_lease_ = 0;
  int64_t clock_ = -1;       // for which the weights in use were pulled; -1 if there are none
  bool at_barrier_ = false;  // the weights are exactly those at barrier clock_
  bool fresh_ = false;  // no push or evaluation since they were pulled, and they are no averages
  std::optional<Task> pushed_;  // last, by the group as it is
};

// Schedule of workers that update by themselves (all-reduce): a fixed share, whose weights are always
// here. Nothing is pulled.
class OwnWeightsSchedule : public Schedule {
 public:
  explicit OwnWeightsSchedule(const WorkPlan& plan) : shares_(plan) {}

  bool on_shares(const wire::State& state) override;
  std::optional<PullAim> on_weights(const PulledWeights& /*weights*/) override {
    return std::nullopt;
  }
  void on_weights_released() override {}
  void on_pushed(int64_t step, Range range) override { shares_.pushed(step, range); }
  void on_evaluated() override { shares_.evaluated(); }

  Decision next() const override;
  std::optional<Task> wanted() const override { return shares_.next_task(); }
  bool weights_fit(const Task& /*task*/) const override { return true; }
  std::optional<Task> upcoming() const override { return shares_.upcoming(); }
  bool gives_up(const PullAim& /*pull*/) const override { return true; }
  bool idle() const override { return shares_.empty(); }
  wire::Grant grant(Range range) const override { return shares_.grant(range); }

  std::vector<Range> nodes(Range range) const override;
  bool acknowledged_is_applied() const override { return true; }

 private:
  ShareList shares_;
};

// Makes the schedule of a worker. The job's strategy decides its kind here and nowhere else.
std::unique_ptr<Schedule> make_schedule(const Strategy& strategy, const WorkPlan& plan);

}  // namespace pushpull

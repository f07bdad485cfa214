// Schedule of whole steps in lockstep (sync, local:H). All slices have one version per step. A
// worker computes each of its shares on exactly the version of that step, and the next version
// contains every micro-batch of it. A new worker first asks the servers for their current step.
#pragma once

#include "worker/schedule/schedule.h"
#include "worker/schedule/share_list.h"

namespace pushpull {

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
  std::optional<Task> wanted() const override { return shares_.next_task(); }
  bool weights_fit(const Task& task) const override { return clock_ >= 0 && clock_ == task.step; }
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
  int64_t clock_ = -1;  // of the weights in use; -1 if there are none
};

}  // namespace pushpull

// Schedule of backup:B (Chen et al., Revisiting Distributed Synchronous SGD, arXiv 1604.00981). A
// step may end without this worker, so it always computes on the newest version. It still evaluates
// its chunks of every evaluation that it has passed.
#pragma once

#include "worker/schedule/schedule.h"
#include "worker/schedule/share_list.h"

namespace pushpull {

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
  bool weights_fit(const Task& task) const override { return clock_ >= 0 && clock_ == task.step; }
  std::optional<Task> upcoming() const override;
  bool gives_up(const PullAim& pull) const override;
  bool idle() const override { return shares_.empty(); }
  wire::Grant grant(Range range) const override { return shares_.grant(range); }

  bool acknowledged_is_applied() const override { return false; }

 private:
  const OwnedShare* evaluation() const;
  const OwnedShare* share_to_compute() const;
  OwnedShare& own(const OwnedShare* share);
  void finish_barrier(const PulledWeights& weights);

  ShareList shares_;
  int64_t clock_ = -1;  // of the weights in use; -1 if there are none
  int64_t newest_ = 0;  // newest version received
};

}  // namespace pushpull

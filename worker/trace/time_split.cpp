#include "worker/trace/time_split.h"

#include <utility>

namespace pushpull {

void TimeTotals::put(wire::Stats* stats) const {
  stats->set_compute_seconds(compute);
  stats->set_push_seconds(push);
  stats->set_wait_seconds(wait);
  stats->set_pull_seconds(pull);
  stats->set_computed(tasks);
}

TimeSplit::TimeSplit(std::function<double()> clock)
    : clock_(std::move(clock)), since_s_(clock_()) {}

void TimeSplit::enter(Phase phase) {
  if (phase == phase_) return;
  const double now = clock_();
  seconds_[phase_] += now - since_s_;
  phase_ = phase;
  since_s_ = now;
}

TimeTotals TimeSplit::totals() const {
  return {seconds_[kCompute], seconds_[kPush], seconds_[kWait], seconds_[kPull], tasks_};
}

}  // namespace pushpull

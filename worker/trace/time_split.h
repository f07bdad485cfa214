// Splits the seconds of a worker's training tasks by phase. The trainer names each phase as it
// enters it; the time until the next call belongs to that phase. Evaluations, and their waits,
// belong to kOther. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "common/net/message.h"

namespace pushpull {

// Seconds of a worker so far, and the tasks (a lease, or a share of a step) they were spent on.
struct TimeTotals {
  double compute = 0.0;  // forward, backward, summing; a straggler's waits too
  double push = 0.0;     // cutting, serialising, handing to the socket
  double wait = 0.0;     // from there to the first message with weights
  double pull = 0.0;     // from there until all weights are here
  int64_t tasks = 0;

  // Into the fields of these names.
  void put(wire::Stats* stats) const;
};

class TimeSplit {
 public:
  enum Phase { kOther, kCompute, kPush, kWait, kPull };

  // clock: seconds that never jump back.
  explicit TimeSplit(std::function<double()> clock);

  // Ends the running phase and begins another one; the same one goes on.
  void enter(Phase phase);
  Phase phase() const { return phase_; }
  // Adds tasks that are computed and pushed; a round of local:H is one for each of its steps.
  void count_tasks(int64_t tasks) { tasks_ += tasks; }

  // Without the running phase: a wait that never ends is none of a task's.
  TimeTotals totals() const;

 private:
  std::function<double()> clock_;
  std::array<double, kPull + 1> seconds_{};
  Phase phase_ = kOther;
  double since_s_;
  int64_t tasks_ = 0;
};

}  // namespace pushpull

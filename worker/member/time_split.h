// Splits the seconds of a worker's training tasks by phase. The trainer names each phase as it
// enters it; the time until the next call belongs to that phase. Evaluations and their waits belong
// to kOther. Single-threaded.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "common/net/message.h"

namespace pushpull {

// The progress of a worker's trainer as its heartbeats report it: the amount computed and the
// reason of the current wait. Heartbeats come from the control thread, so without this a hung
// trainer would look alive. Written by the trainer's threads, read by the control thread.
class Activity {
 public:
  // clock: in milliseconds; must be thread-safe.
  explicit Activity(std::function<int64_t()> clock) : clock_(std::move(clock)) {}

  // Counts micro-batches, or chunks of an evaluation, that were computed. Any thread.
  void add_computed(int64_t count) { computed_.fetch_add(count, std::memory_order_relaxed); }
  // Reports that the trainer waits. Call it in each turn of a wait, at least once a second: a wait
  // that is no longer reported counts as a hang. Trainer's thread.
  //   what: returns the reason, such as "weights of step 3 of server 1"; called a few times a
  //   second.
  void wait(const std::function<std::string()>& what);

  // Fills in `progress` and `waits_for`. Control thread.
  void put(wire::Stats* stats) const;

 private:
  const std::function<int64_t()> clock_;
  std::atomic<int64_t> computed_ = 0;
  mutable std::mutex mutex_;
  std::string what_;          // guarded by mutex_
  int64_t text_ms_ = -1;      // guarded by mutex_; -1 before the first wait
  int64_t next_text_ms_ = 0;  // trainer's thread only
};

// The work of one stage of a divided model so far.
struct StageTotals {
  int64_t layers = 0;     // operations with parameters
  double busy = 0.0;      // seconds in its passes
  double span = 0.0;      // seconds of the parts, from their begin to the end of all stages
  int64_t slots_max = 0;  // micro-batches between forward and backward
  int64_t bytes_in = 0;   // from its neighbours
  int64_t bytes_out = 0;  // to them
};

// Seconds that a worker has spent on its tasks so far. A task is a lease or a share of a step.
struct TimeTotals {
  double compute = 0.0;  // forward, backward, summing; includes the sleep of a straggler
  double push = 0.0;     // cutting, serialising, handing to the socket
  double wait = 0.0;     // from the end of the push to the first message with weights
  double pull = 0.0;     // from that message until all weights have arrived
  int64_t tasks = 0;
  std::vector<StageTotals> stages = {};  // of a divided model
  int first_stage = 0;                   // the number of the first of them, in a group

  // Fills in the fields of the same names.
  void put(wire::Stats* stats) const;
};

class TimeSplit {
 public:
  enum Phase { kOther, kCompute, kPush, kWait, kPull };

  // clock: in seconds, monotonic.
  // mark: called with the name of each phase when it begins.
  explicit TimeSplit(std::function<double()> clock, std::function<void(const char*)> mark = {});

  // Ends the current phase and begins `phase`. Does nothing if they are the same.
  void enter(Phase phase);
  Phase phase() const { return phase_; }
  // Adds tasks that were computed and pushed. A round of local:H counts once per step.
  void count_tasks(int64_t tasks) { tasks_ += tasks; }

  // Returns the totals without the current phase: a wait that never ends belongs to no task.
  TimeTotals totals() const;

 private:
  std::function<double()> clock_;
  std::function<void(const char*)> mark_;
  std::array<double, kPull + 1> seconds_{};
  Phase phase_ = kOther;
  double since_s_;
  int64_t tasks_ = 0;
};

// Returns one by the host's clock, whose phases a profiler of CUDA programs sees.
TimeSplit watched_time_split();

}  // namespace pushpull

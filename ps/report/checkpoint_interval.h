// Decides when checkpoints are due under checkpoint-every = auto: as often as possible at a cost of
// at most a hundredth of the run's time. A state machine: the caller passes time and step. Does no
// I/O and reads no clock. Not thread-safe.
//
// The cost of a checkpoint is measured: the time from its choice until it is on disk, minus the
// time that the steps done meanwhile normally take. A slow disk costs little if training does not
// wait for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace pushpull {

class CheckpointInterval {
 public:
  static constexpr int64_t kFirstMs =
      10'000;                               // until the first checkpoint, which measures the cost
  static constexpr int64_t kMinMs = 5'000;  // least time between two checkpoints
  static constexpr double kShare = 0.01;    // of the run's time

  // ---- events ----
  // Starts a term. The time spent on checkpoints in earlier terms still counts.
  void begin(int64_t now_ms, int64_t step);
  // Reports the training's step while no checkpoint is in progress.
  void reach(int64_t now_ms, int64_t step);
  // Reports the step when the next checkpoint is chosen: its cost counts from here.
  void chosen(int64_t now_ms, int64_t step);
  // Reports that fetching the snapshot of `step` begins.
  void gathering(int64_t now_ms, int64_t step);
  // Reports that the checkpoint is on disk or was given up.
  //   now_step: the training's step.
  void done(int64_t now_ms, int64_t now_step);

  // ---- queries ----
  bool due(int64_t now_ms) const;
  // Returns the steps that training does in this time, or 0 if the rate is unknown.
  int64_t steps_in(double ms) const;
  // After `done`, returns a line: duration and cost of the checkpoint, when the next one is due,
  // and how much training a loss until then would repeat.
  std::string line() const;

 private:
  int64_t began_ms_ = -1;     // start of the run; -1 before it
  double spent_ms_ = 0.0;     // training time spent on checkpoints so far
  double expected_ms_ = 0.0;  // estimated cost of the next one
  int64_t due_ms_ = 0;
  double rate_ = 0.0;    // steps per ms without a checkpoint; 0 if unknown
  int64_t free_ms_ = 0;  // end of the latest checkpoint
  int64_t free_step_ = 0;
  std::optional<int64_t> chosen_ms_;  // empty if none is in progress
  int64_t chosen_step_ = 0;
  int64_t cut_ms_ = 0;
  int64_t cut_step_ = 0;
  int64_t took_ms_ = 0;
  double cost_ms_ = 0.0;
};

}  // namespace pushpull

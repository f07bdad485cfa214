// When checkpoints are due under checkpoint-every = auto: as often as they may be without costing more
// than a hundredth of the run's time. State machine: it is told the time and the step, and knows no
// clock and no file. One thread.
//
// What a checkpoint costs is measured: the time from its choice until it is on disk, less the time in
// which the steps of that time are done otherwise. A disk that takes long costs little where nobody
// waits for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace pushpull {

class CheckpointPace {
 public:
  static constexpr int64_t kFirstMs = 10'000;  // the first one, which tells what one costs
  static constexpr int64_t kLeastMs = 5'000;   // between two
  static constexpr double kShare = 0.01;       // of the run's time

  // ---- events ----
  // A term trains from here on. What the run has spent counts on.
  void begin(int64_t now_ms, int64_t step);
  // The training is there, and no checkpoint is under way.
  void reach(int64_t now_ms, int64_t step);
  // There, too, the next one has been chosen: what it costs begins.
  void chosen(int64_t now_ms, int64_t step);
  // Its weights are those of `step`.
  void cut(int64_t now_ms, int64_t step);
  // It is on disk, or given up. now_step: of the training.
  void done(int64_t now_ms, int64_t now_step);

  // ---- queries ----
  bool due(int64_t now_ms) const;
  // Steps that the training does in this time; 0: not known.
  int64_t steps_in(double ms) const;
  // After `done`: what it took and cost, when the next one is due, and what a loss repeats until then.
  std::string line() const;

 private:
  int64_t began_ms_ = -1;     // the run; -1: not yet
  double spent_ms_ = 0.0;     // of training time, on all checkpoints so far
  double expected_ms_ = 0.0;  // what the next one costs
  int64_t due_ms_ = 0;
  double rate_ = 0.0;    // steps per ms while there is no checkpoint; 0: not known
  int64_t free_ms_ = 0;  // since then there is none
  int64_t free_step_ = 0;
  std::optional<int64_t> chosen_ms_;  // empty: none is under way
  int64_t chosen_step_ = 0;
  int64_t cut_ms_ = 0;
  int64_t cut_step_ = 0;
  int64_t took_ms_ = 0;
  double cost_ms_ = 0.0;
};

}  // namespace pushpull

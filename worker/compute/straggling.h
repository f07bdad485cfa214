// Slows a worker down on purpose (`straggler`): after each piece of computing it waits until the
// piece has taken FACTOR times as long. It sleeps rather than spins, because it emulates a slower
// machine and must not take cores from other processes. Single-threaded.
#pragma once

#include <functional>

namespace pushpull {

class Straggling {
 public:
  // clock: in seconds, monotonic. sleep: sleeps for at most the given seconds.
  Straggling(std::function<double()> clock, std::function<void(double)> sleep);

  // 1 = no slowdown.
  void set_factor(double factor) { factor_ = factor; }

  // Starts or resumes the clock of computing.
  void resume();
  // Stops it and sleeps for the time owed.
  void lag();

 private:
  std::function<double()> clock_;
  std::function<void(double)> sleep_;
  double factor_ = 1.0;
  double resumed_s_ = 0.0;
  double owed_s_ = 0.0;  // negative after sleeping too long
};

}  // namespace pushpull

// Makes a worker slower on purpose (`straggler`): it waits after each piece of computing, so that
// every result comes out FACTOR times as late as it would. It waits and does not burn: it stands
// for a slower machine, and must not take cores from the others. One thread.
#pragma once

#include <functional>

namespace pushpull {

class Straggling {
 public:
  // clock: seconds that never jump back. sleep: for so many seconds, or less.
  Straggling(std::function<double()> clock, std::function<void(double)> sleep);

  // 1: no slower than it is.
  void set_factor(double factor) { factor_ = factor; }

  // Computing goes on, or begins.
  void resume();
  // Something is computed: waits as long as it has to.
  void lag();

 private:
  std::function<double()> clock_;
  std::function<void(double)> sleep_;
  double factor_ = 1.0;
  double resumed_s_ = 0.0;
  double owed_s_ = 0.0;  // negative: it has slept too long
};

}  // namespace pushpull

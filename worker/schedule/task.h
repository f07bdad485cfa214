// One piece of a worker's work, as its schedule hands it out. Plain value.
#pragma once

#include <cstdint>

#include "common/layout/fixed_tree.h"

namespace pushpull {

struct Task {
  enum Kind {
    kWait,      // process messages, then ask again
    kCompute,   // micro-batches `range` of `step`, then push
    kEvaluate,  // chunks `range` at barrier `step`, then finish_evaluation
    kDone,      // nothing more to compute in this run, unless a new share arrives
  };
  Kind kind = kWait;
  int64_t step = 0;
  Range range;
  int64_t steps = 1;  // local:H: the task covers steps [step, step + steps)

  friend bool operator==(const Task&, const Task&) = default;
};

}  // namespace pushpull

// The minimum time of an exchange through shared memory: the update as a plain loop over memory,
// which reads each worker's gradient, state and weights once, and writes state and weights once.
// Call it from one thread; it starts others.
#pragma once

#include <cstdint>

#include "common/update/optimizer.h"

namespace pushpull {

// Median in microseconds, with the fastest number of threads.
//   bytes: size of the weights, and of each of the `gradients` gradients.
double memory_floor_us(int64_t bytes, int64_t gradients, OptimizerKind optimizer);

}  // namespace pushpull

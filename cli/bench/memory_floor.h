// The least that an exchange through shared memory can take: the update as a plain loop over
// memory, which reads each worker's gradient, state and weights once and writes state and weights
// once. One thread calls it; it starts others.
#pragma once

#include <cstdint>

#include "common/update/optimizer.h"

namespace pushpull {

// Median in microseconds, of the fastest number of threads.
//   bytes: of the weights, and of each of `gradients` gradients.
double memory_floor_us(int64_t bytes, int64_t gradients, OptimizerKind optimizer);

}  // namespace pushpull

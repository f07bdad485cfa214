// Applies the keys train-samples and test-samples. Thread-safe.
#pragma once

#include <cstdint>

namespace pushpull {

// Returns the number of samples to use of a split that has `available`: `wanted`, or all if it is
// 0. Throws Error(kUsage), which names `key` and both numbers, if there are fewer.
int64_t take_samples(const char* key, int64_t wanted, int64_t available);

}  // namespace pushpull

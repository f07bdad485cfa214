// What train-samples and test-samples ask for. Any thread.
#pragma once

#include <cstdint>

namespace pushpull {

// How many samples of a split that holds `available` are used: the first `wanted`, or all where it
// is 0. Throws Error(kUsage) naming `key` and both numbers where there are fewer.
int64_t take_samples(const char* key, int64_t wanted, int64_t available);

}  // namespace pushpull

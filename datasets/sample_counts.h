// How many samples a split has, and the numbers of generated samples. Any thread.
#pragma once

#include <cstdint>

#include "datasets/dataset.h"

namespace pushpull {

// Returns the samples to use of a split that has `available`: `wanted`, or all if it is 0. Throws
// Error(kUsage), which names `key` and both numbers, if there are fewer.
int64_t take_samples(const char* key, int64_t wanted, int64_t available);

// Returns `value`. Throws Error(kUsage), which names dataset, key and value, if it is not between
// `least` and `most`.
int64_t check_generated(const char* dataset, const char* key, int64_t value, int64_t least,
                        int64_t most);

struct GeneratedSizes {
  int64_t train;
  int64_t test;
};

// Returns train-samples and test-samples of the job; in place of 0, 4096 and 1024. Throws
// Error(kUsage), which names the key, if a number is too large.
GeneratedSizes generated_sizes(const char* dataset, const Job& job);

// Returns the number of a sample, which is different in the two splits.
//   sample: in the split, below its size.
uint32_t generated_number(Split split, int64_t sample);

}  // namespace pushpull

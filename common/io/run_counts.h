// Counts the pushes and samples in a run's weights, and identifies the samples by a hash.
// Checkpoints hold these counts, so that a run that returns to a checkpoint continues counting from
// there. Plain data; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/hash_sum.h"

namespace pushpull {

struct RunCounts {
  int64_t samples = 0;
  int64_t pushes_applied = 0;
  int64_t pushes_dropped = 0;               // backup:B
  int64_t bad_gradients = 0;                // micro-batches that count as zeros
  std::vector<int64_t> samples_per_worker;  // by rank
  std::vector<int64_t> pushes_dropped_per_worker;
  HashSum data_hash;  // sum of the hashes of all samples

  friend bool operator==(const RunCounts&, const RunCounts&) = default;
};

}  // namespace pushpull

// A micro-batch of samples as a model receives it. Views only; any thread.
#pragma once

#include <cstdint>
#include <span>

namespace pushpull {

struct Samples {
  int64_t step = -1;         // -1: evaluation
  int64_t micro_batch = -1;  // of the step; evaluation: the chunk
  std::span<const int64_t>
      indices;                   // in the split; the padding of an evaluation's last chunk has none
  std::span<const float> block;  // all fields, see BatchLayout; empty if the model reads the data
};

}  // namespace pushpull

// A micro-batch of samples as a model receives it. Views only; any thread.
#pragma once

#include <cstdint>
#include <span>

namespace pushpull {

struct Samples {
  // -1 in an evaluation.
  int64_t step = -1;
  // Of the step; in an evaluation the chunk.
  int64_t micro_batch = -1;
  // In the split. The padding of an evaluation's last chunk has none.
  std::span<const int64_t> indices;
  // All fields, see BatchLayout. Empty if the model reads the data itself.
  std::span<const float> block;
  // The epoch that the step belongs to; 0 in an evaluation.
  int64_t epoch = 0;
  // True only if the weights are those of the previous call of the model.
  bool same_weights = false;
};

}  // namespace pushpull

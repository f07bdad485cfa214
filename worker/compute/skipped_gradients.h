// Micro-batches whose loss or gradient is not finite, where they count as zeros (on-bad-gradient =
// skip): finds and clears them, one micro-batch at a time. So the bits of a sum do not depend on who
// computes which part of it. One thread.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "common/layout/tensor_table.h"
#include "common/net/message.h"
#include "models/model.h"

namespace pushpull {

class SkippedGradients {
 public:
  // table: borrowed. on_host: the model leaves its gradients in host memory. Throws Error(kUsage).
  SkippedGradients(const TensorTable& table, bool on_host);

  struct MicroBatch {
    std::span<float> gradient;  // of the flat vector
    float loss = 0.0F;
    size_t place = 0;  // of its loss among those of the push
  };
  // Returns the loss that counts, 0 for what is not finite. Its gradient is zeros then; its batch
  // statistics are the running ones, which they leave as they are.
  //   needed: asked for each of those before it is read; may be empty, and may throw.
  float take(const MicroBatch& computed, std::span<const float> weights,
             const WeightsNeeded& needed);
  // Those that have been skipped since the last call.
  std::vector<wire::BadGradient> take_found() { return std::exchange(found_, {}); }

 private:
  const TensorTable& table_;
  std::vector<wire::BadGradient> found_;
};

}  // namespace pushpull

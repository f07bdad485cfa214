// Finds micro-batches with a loss or gradient that is not finite and replaces them by zeros
// (on-bad-gradient = skip), one micro-batch at a time: the bits of a sum do not depend on how
// micro-batches are spread over workers. Single-threaded.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "common/net/message.h"
#include "models/model.h"

namespace pushpull {

struct TensorTable;

class SkippedGradients {
 public:
  // Borrows `table`. on_host: the gradients are in host memory. Throws Error(kUsage) if they are
  // not.
  SkippedGradients(const TensorTable& table, bool on_host);

  struct MicroBatch {
    std::span<float> gradient;  // flat vector
    float loss = 0.0F;
    size_t place = 0;  // index of its loss in the push
  };
  // Returns the loss, or 0 if the loss or the gradient is not finite. In that case clears the
  // gradient and sets the batch statistics to the running ones of `weights`, so that their average
  // does not change.
  //   needed: called for each of those tensors before it is read; may be empty; may throw.
  float take(const MicroBatch& computed, std::span<const float> weights,
             const WeightsNeeded& needed);
  // Returns the micro-batches skipped since the last call.
  std::vector<wire::BadGradient> take_found() { return std::exchange(found_, {}); }

 private:
  const TensorTable& table_;
  std::vector<wire::BadGradient> found_;
};

}  // namespace pushpull

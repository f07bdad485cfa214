// An operation's weights in the type that it computes in: the caller's floats, or a 16-bit copy,
// made once for forward and backward. Used on the backend's thread.
#pragma once

#include <cstdint>

#include "models/ops/cuda/elementwise.h"
#include "models/ops/cuda/shared.h"

namespace pushpull::ops::cuda {

class Weights {
 public:
  Weights(Shared& shared, int64_t count) : shared_(&shared), count_(count) {
    if (shared.short_activations()) copy_ = shared.buffer((static_cast<size_t>(count) + 1) / 2);
  }

  const Activation* of_forward(const float* w) {
    if (!shared_->short_activations()) return w;
    cast_weights(*shared_, w, count_, copy_.data());
    copied_ = w;
    return copy_.data();
  }
  // Returns the copy made by the latest forward.
  const Activation* of_backward(const float* w) {
    return shared_->short_activations() && copied_ == w ? copy_.data() : of_forward(w);
  }

 private:
  Shared* shared_;
  int64_t count_;
  Buffer copy_;
  const float* copied_ = nullptr;
};

}  // namespace pushpull::ops::cuda

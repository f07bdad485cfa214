// The factor of the gradient of a head's scores, for its kernels.
#pragma once

#include <cstdint>

#include "common/base/host_device.h"
#include "models/ops/cuda/shared.h"
#include "models/ops/operation.h"

namespace pushpull::ops::cuda {

// Run::scale, which lies in memory of the device, or 1 / targets without one; times the loss scale.
struct HeadScale {
  const float* given = nullptr;
  float otherwise = 1.0F;
  float loss_scale = 1.0F;

  HeadScale(const Shared& shared, const Run& run, int64_t targets)
      : given(run.scale),
        otherwise(1.0F / static_cast<float>(targets)),
        loss_scale(shared.loss_scale) {}
  PP_HOST_DEVICE float value() const {
    return (given == nullptr ? otherwise : *given) * loss_scale;
  }
};

}  // namespace pushpull::ops::cuda

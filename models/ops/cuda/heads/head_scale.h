// The factor of the gradient of a head's scores, for its kernels.
#pragma once

#include "common/base/host_device.h"
#include "models/ops/cuda/shared.h"
#include "models/ops/operation.h"

namespace pushpull::ops::cuda {

// Run::scale, which lies in memory of the device, times the loss scale.
struct HeadScale {
  const float* scale = nullptr;
  float loss_scale = 1.0F;

  HeadScale(const Shared& shared, const Run& run)
      : scale(run.scale), loss_scale(shared.loss_scale) {}
  PP_HOST_DEVICE float value() const { return *scale * loss_scale; }
};

}  // namespace pushpull::ops::cuda

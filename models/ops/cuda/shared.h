// State shared by all operations of one CUDA backend. They run inside the backend's Scope, which
// makes its device current on the calling thread.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "common/device/device.h"
#include "models/ops/choices.h"
#include "models/ops/ops.h"

namespace pushpull::ops::cuda {

// An element of an image, a row, or their gradients: of the type given by Shared::precision.
using Activation = void;

struct Shared {
  std::shared_ptr<device::Device> device;
  int index = 0;                  // of the device
  cudaStream_t stream = nullptr;  // compute; the backend's
  cublasLtHandle_t lt = nullptr;  // of the backend
  Precision precision = Precision::kFp32;
  float loss_scale = 1.0F;
  bool measure = false;       // choose algorithms by time; if false, by the library's order
  Choices given;              // the job's choices; a plan looks up its key
  Choices made;               // the choices made by our plans
  std::weak_ptr<void> cudnn;  // cuDNN's handle, which the convolutions own together
  device::Memory scratch;     // workspace of cuBLASLt and cuDNN, used by one run at a time

  // Grows scratch. Only plans do so, never runs; ask for its address in each run.
  void need_scratch(size_t bytes);
  // Returns zeroed memory. Throws Error(kDevice) with the requested size and the free memory.
  Buffer buffer(size_t floats);

  bool short_activations() const {
    return precision == Precision::kBf16 || precision == Precision::kFp16;
  }
};

}  // namespace pushpull::ops::cuda

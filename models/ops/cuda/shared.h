// What all operations of one CUDA backend share. They run inside the backend's Scope, which makes its
// device the calling thread's.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "common/device/device.h"
#include "models/ops/choices.h"
#include "models/ops/ops.h"

namespace pushpull::ops::cuda {

struct Shared {
  std::shared_ptr<device::Device> device;
  int index = 0;                  // of the device
  cudaStream_t stream = nullptr;  // compute; the backend's
  cublasLtHandle_t lt = nullptr;  // the backend's
  Precision precision = Precision::kFp32;
  float loss_scale = 1.0F;
  bool measure = true;        // choose by time, else by heuristic
  Choices given;              // the job's: a plan whose key is there takes it
  Choices made;               // what plans have taken
  std::weak_ptr<void> cudnn;  // its handle, which convolutions own together
  device::Memory scratch;     // workspace of cuBLASLt and cuDNN, for one run at a time

  // Scratch grows while plans are made, never in a run: ask for its place in each run.
  void need_scratch(size_t bytes);
  // Zeroed. Throws Error(kDevice): what was asked, what is free.
  Buffer buffer(size_t floats);

  bool short_activations() const {
    return precision == Precision::kBf16 || precision == Precision::kFp16;
  }
};

}  // namespace pushpull::ops::cuda

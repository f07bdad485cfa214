// What must be equal between workers that compute on a GPU for equal bits (P1). The driver is not
// in it: it does not compute. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "models/ops/ops.h"

namespace pushpull::ops {

struct DeviceNumerics {
  std::string device;  // "NVIDIA H200"
  int major = 0;       // compute capability
  int minor = 0;
  int runtime = 0;       // as cudaRuntimeGetVersion tells it: 13020 is 13.2
  size_t cublas_lt = 0;  // as cublasLtGetVersion tells it: 130100 is 13.1.0
  std::string cudnn;     // "9.19.0"; "": convolutions go without
  Precision precision = Precision::kFp32;
  float loss_scale = 1.0F;
};

// "cuda NVIDIA H200 sm_90 runtime 13.0 cuBLASLt 13.1.0 cuDNN 9.19.0 tf32 loss-scale 1".
std::string to_string(const DeviceNumerics& numerics);

}  // namespace pushpull::ops

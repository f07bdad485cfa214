// Everything that must match between workers on a GPU for equal bits (P1). Includes the driver only
// if it compiles our kernels; otherwise it does not affect results. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "models/ops/ops.h"

namespace pushpull::ops {

struct DeviceNumerics {
  std::string device;  // "NVIDIA H200"
  int major = 0;       // compute capability
  int minor = 0;
  int ptx_driver = 0;    // from cudaDriverGetVersion if the driver compiles our PTX; else 0
  int runtime = 0;       // from cudaRuntimeGetVersion: 13020 is 13.2
  size_t cublas_lt = 0;  // from cublasLtGetVersion: 130100 is 13.1.0
  std::string cudnn;     // "9.19.0"; "" if convolutions do not use it
  Precision precision = Precision::kFp32;
  float loss_scale = 1.0F;
};

// Returns "cuda NVIDIA H200 sm_90 runtime 13.0 cuBLASLt 13.1.0 cuDNN 9.19.0 tf32 loss-scale 1";
// with PTX "... sm_90 ptx by driver 13.1 runtime ...".
std::string to_string(const DeviceNumerics& numerics);

// Returns true if a program has machine code for devices of a compute capability. If not, the
// driver compiles its PTX.
//   architectures: of the build, as in CMAKE_CUDA_ARCHITECTURES: "80-real, 90".
// Source: CUDA C++ Programming Guide, "Binary Compatibility": code for 8.0 runs on 8.x; "90a" on
// 9.0 only, "100f" on its family. `native` and `all` are assumed to include it.
bool has_machine_code(std::string_view architectures, int major, int minor);

}  // namespace pushpull::ops

// cuDNN, loaded when the first convolution needs it. It is not part of the CUDA toolkit: a machine
// may lack it, and convolutions then work without it. Thread-safe.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <string_view>

#include "common/device/cuda_check.h"

namespace pushpull::ops::cuda {

#define PUSHPULL_CUDNN(F)                           \
  F(cudnnCreate)                                    \
  F(cudnnDestroy)                                   \
  F(cudnnSetStream)                                 \
  F(cudnnGetVersion)                                \
  F(cudnnGetErrorString)                            \
  F(cudnnCreateTensorDescriptor)                    \
  F(cudnnDestroyTensorDescriptor)                   \
  F(cudnnSetTensor4dDescriptor)                     \
  F(cudnnCreateFilterDescriptor)                    \
  F(cudnnDestroyFilterDescriptor)                   \
  F(cudnnSetFilter4dDescriptor)                     \
  F(cudnnCreateConvolutionDescriptor)               \
  F(cudnnDestroyConvolutionDescriptor)              \
  F(cudnnSetConvolution2dDescriptor)                \
  F(cudnnSetConvolutionMathType)                    \
  F(cudnnGetConvolutionForwardAlgorithm_v7)         \
  F(cudnnGetConvolutionBackwardFilterAlgorithm_v7)  \
  F(cudnnGetConvolutionBackwardDataAlgorithm_v7)    \
  F(cudnnGetConvolutionForwardWorkspaceSize)        \
  F(cudnnGetConvolutionBackwardFilterWorkspaceSize) \
  F(cudnnGetConvolutionBackwardDataWorkspaceSize)   \
  F(cudnnConvolutionForward)                        \
  F(cudnnConvolutionBackwardFilter)                 \
  F(cudnnConvolutionBackwardData)

struct Cudnn {
#define PUSHPULL_MEMBER(name) \
  decltype(&::name) name = nullptr;  // NOLINT(bugprone-macro-parentheses)
  PUSHPULL_CUDNN(PUSHPULL_MEMBER)
#undef PUSHPULL_MEMBER
};

// One major version in the units of cudnnGetVersion: 8.9.7 is 8907, 9.19.0 is 91900 (CUDNN_VERSION
// in cudnn_version.h).
inline constexpr size_t kCudnnMajorVersion = CUDNN_MAJOR >= 9 ? 10'000 : 1'000;

// Returns null if it cannot be loaded or has another major version; logs the reason once.
const Cudnn* cudnn();

inline void check(cudnnStatus_t status, std::string_view call, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  device::cuda_failed("cudnn", cudnn()->cudnnGetErrorString(status), call, file, line);
}

}  // namespace pushpull::ops::cuda

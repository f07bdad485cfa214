// The contents of cuDNN's opaque handle and descriptors in its stand-in.
#pragma once

#include <cudnn.h>

#include "tests/cuda_on_host/libs/cudnn_convolution.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

// `count` is 0 until the descriptor is set.
struct cudnnTensorStruct {
  pushpull::cuda_on_host::Tensor tensor;
};

struct cudnnFilterStruct {
  pushpull::cuda_on_host::Tensor tensor;
};

struct cudnnConvolutionStruct {
  pushpull::cuda_on_host::Window window;
  bool is_set = false;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

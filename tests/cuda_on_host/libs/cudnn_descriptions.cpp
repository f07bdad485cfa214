// Handles and descriptors of the stand-in for cuDNN. Their refusals are those of cuDNN 9.19,
// measured.
#include "tests/cuda_on_host/libs/cudnn_descriptions.h"

#include <limits>
#include <optional>

using namespace pushpull::cuda_on_host;

namespace {

std::optional<Number> number(cudnnDataType_t type) {
  if (type == CUDNN_DATA_FLOAT) return Number::kF32;
  if (type == CUDNN_DATA_BFLOAT16) return Number::kBf16;
  if (type == CUDNN_DATA_HALF) return Number::kF16;
  return {};
}

cudnnStatus_t describe(cudnnTensorFormat_t format, cudnnDataType_t type,
                       const std::array<int64_t, 4>& size, Tensor& to) {
  const std::optional<Number> known = number(type);
  if (!known || (format != CUDNN_TENSOR_NCHW && format != CUDNN_TENSOR_NHWC)) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  int64_t count = 1;
  for (const int64_t each : size) {
    if (each <= 0) return CUDNN_STATUS_BAD_PARAM;
    count *= each;
    // Elements are counted in 32 bits.
    if (count > std::numeric_limits<int32_t>::max()) return CUDNN_STATUS_NOT_SUPPORTED;
  }
  const auto& [n, c, h, w] = size;
  to.type = *known;
  to.size = size;
  to.stride = format == CUDNN_TENSOR_NCHW ? std::array<int64_t, 4>{c * h * w, h * w, w, 1}
                                          : std::array<int64_t, 4>{c * h * w, 1, c * w, c};
  return CUDNN_STATUS_SUCCESS;
}

template <class Struct>
cudnnStatus_t create(Struct** to) {
  if (to == nullptr) return CUDNN_STATUS_BAD_PARAM;
  *to = new Struct;
  return CUDNN_STATUS_SUCCESS;
}

template <class Struct>
cudnnStatus_t destroy(Struct* gone) {
  delete gone;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

size_t cudnnGetVersion() { return CUDNN_VERSION; }

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_EXECUTION_FAILED:
      return "CUDNN_STATUS_EXECUTION_FAILED";
    default:
      return "CUDNN_UNKNOWN_STATUS";
  }
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return create(handle); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return destroy(handle); }

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr) return CUDNN_STATUS_BAD_PARAM;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* to) { return create(to); }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t desc) { return destroy(desc); }

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t desc, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  if (desc == nullptr) return CUDNN_STATUS_BAD_PARAM;
  return describe(format, type, {n, c, h, w}, desc->tensor);
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* to) { return create(to); }
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t desc) { return destroy(desc); }

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t desc, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  if (desc == nullptr) return CUDNN_STATUS_BAD_PARAM;
  return describe(format, type, {k, c, h, w}, desc->tensor);
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* to) {
  return create(to);
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t desc) {
  return destroy(desc);
}

// The real one refuses to compute in bf16, but keeps the math type.
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t desc, int pad_h,
                                              int pad_w, int stride_h, int stride_w, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
  const bool taken = desc != nullptr && pad_h >= 0 && pad_w >= 0 && stride_h > 0 && stride_w > 0 &&
                     dilation_h > 0 && dilation_w > 0;
  if (!taken || (mode != CUDNN_CROSS_CORRELATION && mode != CUDNN_CONVOLUTION)) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  if (compute != CUDNN_DATA_FLOAT && compute != CUDNN_DATA_HALF) return CUDNN_STATUS_BAD_PARAM;
  // not modelled: a flipped filter, and 16-bit sums
  if (mode != CUDNN_CROSS_CORRELATION || compute != CUDNN_DATA_FLOAT) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  desc->window = {{pad_h, pad_w}, {stride_h, stride_w}, {dilation_h, dilation_w}};
  desc->is_set = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t desc, cudnnMathType_t math) {
  if (desc == nullptr || math < CUDNN_DEFAULT_MATH || math > CUDNN_FMA_MATH) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  desc->math = math;
  return CUDNN_STATUS_SUCCESS;
}

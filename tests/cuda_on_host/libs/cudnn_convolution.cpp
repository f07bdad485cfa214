// The convolutions and algorithms that the stand-in for cuDNN supports. Source: NVIDIA, cuDNN API
// reference, "cudnnConvolutionForward()" and its two gradients (BAD_PARAM, NOT_SUPPORTED,
// deterministic algorithms), and cudnn_ops.h. One algorithm needs more workspace than any caller
// has, and some add in any order.
#include <algorithm>
#include <array>
#include <atomic>

#include "tests/cuda_on_host/libs/cudnn_descriptions.h"
#include "tests/cuda_on_host/libs/enqueue.h"

namespace pushpull::cuda_on_host {

namespace {

enum class Kind { kPlain, kTensor, kFft, kWinograd, kMissing };

// Numbered as in cudnn_ops.h, for each direction.
struct Algorithm {
  int id = 0;
  Kind kind = Kind::kPlain;
  bool deterministic = true;
};

constexpr std::array<Algorithm, 8> kForward{{{7, Kind::kWinograd},
                                             {5, Kind::kFft},
                                             {1, Kind::kTensor},
                                             {6, Kind::kWinograd},
                                             {0, Kind::kPlain},
                                             {2, Kind::kPlain},
                                             {4, Kind::kFft},
                                             {3, Kind::kMissing}}};
constexpr std::array<Algorithm, 7> kFilter{{{0, Kind::kPlain, false},
                                            {3, Kind::kPlain, false},
                                            {5, Kind::kWinograd},
                                            {1, Kind::kTensor},
                                            {2, Kind::kFft},
                                            {6, Kind::kFft},
                                            {4, Kind::kMissing}}};
constexpr std::array<Algorithm, 6> kData{{{0, Kind::kPlain, false},
                                          {4, Kind::kWinograd},
                                          {1, Kind::kTensor},
                                          {5, Kind::kWinograd},
                                          {2, Kind::kFft},
                                          {3, Kind::kFft}}};

constexpr size_t kFftWorkspace = size_t{1} << 30;
constexpr size_t kVector = 16;  // bytes per load of the algorithms that use tensor cores

struct Asked {
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t x;
  cudnnFilterDescriptor_t w;
  cudnnConvolutionDescriptor_t convolution;
  cudnnTensorDescriptor_t y;
};

#define RETURN_IF_REFUSED(call) \
  if (const cudnnStatus_t status = (call); status != CUDNN_STATUS_SUCCESS) return status

cudnnStatus_t read(const Asked& asked, Direction direction, Convolution& to) {
  const bool there = asked.handle != nullptr && asked.x != nullptr && asked.w != nullptr &&
                     asked.convolution != nullptr && asked.y != nullptr;
  if (!there || !asked.convolution->is_set) return CUDNN_STATUS_BAD_PARAM;
  const Tensor& x = asked.x->tensor;
  const Tensor& w = asked.w->tensor;
  const Tensor& y = asked.y->tensor;
  if (x.count() == 0 || w.count() == 0 || y.count() == 0) return CUDNN_STATUS_BAD_PARAM;
  if (x.type != w.type || x.type != y.type || w.size[1] != x.size[1]) return CUDNN_STATUS_BAD_PARAM;
  const Window& window = asked.convolution->window;
  if (y.size[0] != x.size[0] || y.size[1] != w.size[0]) return CUDNN_STATUS_BAD_PARAM;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t padded = x.size[i + 2] + 2 * window.padding[i];
    const int64_t filter = (w.size[i + 2] - 1) * window.dilation[i] + 1;
    if (filter > padded) return CUDNN_STATUS_BAD_PARAM;
    if (y.size[i + 2] != (padded - filter) / window.stride[i] + 1)
      return CUDNN_STATUS_NOT_SUPPORTED;
  }
  to = {direction, x, w, y, window, Rounding::kNone, false};
  return CUDNN_STATUS_SUCCESS;
}

const Algorithm* find(Direction direction, int id) {
  const auto of = [id](const auto& all) -> const Algorithm* {
    const auto* const found =
        std::find_if(all.begin(), all.end(), [id](const Algorithm& each) { return each.id == id; });
    return found == all.end() ? nullptr : found;
  };
  return direction == Direction::kForward ? of(kForward)
         : direction == Direction::kData  ? of(kData)
                                          : of(kFilter);
}

bool uses_tensor_cores(const Algorithm& algorithm, cudnnMathType_t math) {
  return algorithm.kind == Kind::kTensor && math != CUDNN_FMA_MATH;
}

// 16-bit numbers are multiplied on tensor cores only.
bool is_supported(const Algorithm& algorithm, const Convolution& conv, cudnnMathType_t math) {
  const bool short_numbers = conv.x.type != Number::kF32;
  if (short_numbers && (math == CUDNN_FMA_MATH || math == CUDNN_DEFAULT_MATH)) {
    return algorithm.kind == Kind::kPlain && conv.x.type == Number::kF16;
  }
  const bool unit_steps = conv.window.stride == std::array<int64_t, 2>{1, 1} &&
                          conv.window.dilation == std::array<int64_t, 2>{1, 1};
  switch (algorithm.kind) {
    case Kind::kPlain:
      return !short_numbers;
    case Kind::kTensor:
      return true;
    case Kind::kFft:
      return conv.x.type != Number::kBf16 && unit_steps;
    case Kind::kWinograd:
      return conv.x.type != Number::kBf16 && unit_steps && conv.w.size[2] == 3 &&
             conv.w.size[3] == 3;
    case Kind::kMissing:
      break;
  }
  return false;
}

size_t workspace_of(const Algorithm& algorithm, const Convolution& conv) {
  switch (algorithm.kind) {
    case Kind::kTensor:
      return static_cast<size_t>(conv.w.count()) * sizeof(float) + 100;  // not a round size
    case Kind::kFft:
      return kFftWorkspace;
    case Kind::kWinograd:
      return static_cast<size_t>(conv.w.size[0] * conv.w.size[1]) * 16 * sizeof(float);
    default:
      return 0;
  }
}

// How an algorithm rounds f32 operands.
Rounding rounding_of(const Algorithm& algorithm, cudnnMathType_t math) {
  if (!uses_tensor_cores(algorithm, math)) return Rounding::kNone;
  return math == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION ? Rounding::kF16 : Rounding::kTf32;
}

// Lists all algorithms; a status marks the unsupported ones.
template <class Result, class All>
cudnnStatus_t list(const Asked& asked, Direction direction, const All& all, int room, int* count,
                   Result* results) {
  Convolution conv;
  RETURN_IF_REFUSED(read(asked, direction, conv));
  if (room < 1 || count == nullptr || results == nullptr) return CUDNN_STATUS_BAD_PARAM;
  *count = std::min(room, static_cast<int>(all.size()));
  for (int i = 0; i < *count; ++i) {
    const Algorithm& algorithm = all[static_cast<size_t>(i)];
    const bool tensor = conv.x.type != Number::kF32 && algorithm.kind != Kind::kPlain;
    const cudnnMathType_t math = tensor ? CUDNN_TENSOR_OP_MATH : CUDNN_DEFAULT_MATH;
    const bool supported = is_supported(algorithm, conv, math);
    Result& to = results[i];
    to = {};
    to.algo = static_cast<decltype(to.algo)>(algorithm.id);
    to.status = supported ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
    to.time = supported ? static_cast<float>(i + 1) : -1.0F;
    to.memory = supported ? workspace_of(algorithm, conv) : 0;
    to.determinism = algorithm.deterministic ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
    to.mathType = math;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t workspace(const Asked& asked, Direction direction, int id, size_t* bytes) {
  Convolution conv;
  RETURN_IF_REFUSED(read(asked, direction, conv));
  const Algorithm* const algorithm = find(direction, id);
  if (algorithm == nullptr || bytes == nullptr) return CUDNN_STATUS_BAD_PARAM;
  if (!is_supported(*algorithm, conv, asked.convolution->math)) return CUDNN_STATUS_NOT_SUPPORTED;
  *bytes = workspace_of(*algorithm, conv);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t run(const Asked& asked, Direction direction, int id, ConvolutionOperands at,
                  size_t workspace_bytes, const void* alpha, const void* beta) {
  Convolution conv;
  RETURN_IF_REFUSED(read(asked, direction, conv));
  const bool there = alpha != nullptr && beta != nullptr && at.x != nullptr && at.w != nullptr &&
                     at.y != nullptr && at.result != nullptr;
  const Algorithm* const algorithm = find(direction, id);
  if (!there || algorithm == nullptr) return CUDNN_STATUS_BAD_PARAM;
  const cudnnMathType_t math = asked.convolution->math;
  if (!is_supported(*algorithm, conv, math)) return CUDNN_STATUS_NOT_SUPPORTED;
  at.workspace_bytes = workspace_of(*algorithm, conv);
  if (at.workspace_bytes > workspace_bytes ||
      (at.workspace_bytes > 0 && (at.workspace == nullptr || !is_aligned(at.workspace, kVector)))) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  const size_t alignment = uses_tensor_cores(*algorithm, math) ? kVector : bytes_of(conv.x.type);
  if (!is_aligned(at.x, alignment) || !is_aligned(at.w, alignment) ||
      !is_aligned(at.y, alignment)) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  at.alpha = *static_cast<const float*>(alpha);
  at.beta = *static_cast<const float*>(beta);
  conv.rounding = rounding_of(*algorithm, math);
  conv.from_the_end = id % 2 != 0;
  const bool any_order = !algorithm->deterministic;
  const bool taken = enqueue(asked.handle->stream, [conv, at, any_order]() mutable {
    static std::atomic<bool> turn{false};
    // each run adds in the opposite order of the run before
    if (any_order) conv.from_the_end = !turn.exchange(!turn);
    convolve(conv, at);
  });
  return taken ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

}  // namespace

}  // namespace pushpull::cuda_on_host

using namespace pushpull::cuda_on_host;

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
    cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t y, int room, int* count,
    cudnnConvolutionFwdAlgoPerf_t* results) {
  return list({handle, x, w, conv, y}, Direction::kForward, kForward, room, count, results);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t y,
    cudnnConvolutionDescriptor_t conv, cudnnFilterDescriptor_t w, int room, int* count,
    cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  return list({handle, x, w, conv, y}, Direction::kFilter, kFilter, room, count, results);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t y,
    cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t x, int room, int* count,
    cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return list({handle, x, w, conv, y}, Direction::kData, kData, room, count, results);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
    cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t algo,
    size_t* bytes) {
  return workspace({handle, x, w, conv, y}, Direction::kForward, algo, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t y,
    cudnnConvolutionDescriptor_t conv, cudnnFilterDescriptor_t w,
    cudnnConvolutionBwdFilterAlgo_t algo, size_t* bytes) {
  return workspace({handle, x, w, conv, y}, Direction::kFilter, algo, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t handle, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t y,
    cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t x,
    cudnnConvolutionBwdDataAlgo_t algo, size_t* bytes) {
  return workspace({handle, x, w, conv, y}, Direction::kData, algo, bytes);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      cudnnTensorDescriptor_t x_desc, const void* x,
                                      cudnnFilterDescriptor_t w_desc, const void* w,
                                      cudnnConvolutionDescriptor_t conv,
                                      cudnnConvolutionFwdAlgo_t algo, void* space, size_t bytes,
                                      const void* beta, cudnnTensorDescriptor_t y_desc, void* y) {
  return run({handle, x_desc, w_desc, conv, y_desc}, Direction::kForward, algo, {x, w, y, y, space},
             bytes, alpha, beta);
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             cudnnTensorDescriptor_t x_desc, const void* x,
                                             cudnnTensorDescriptor_t y_desc, const void* y,
                                             cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionBwdFilterAlgo_t algo, void* space,
                                             size_t bytes, const void* beta,
                                             cudnnFilterDescriptor_t w_desc, void* w) {
  return run({handle, x_desc, w_desc, conv, y_desc}, Direction::kFilter, algo, {x, w, y, w, space},
             bytes, alpha, beta);
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           cudnnFilterDescriptor_t w_desc, const void* w,
                                           cudnnTensorDescriptor_t y_desc, const void* y,
                                           cudnnConvolutionDescriptor_t conv,
                                           cudnnConvolutionBwdDataAlgo_t algo, void* space,
                                           size_t bytes, const void* beta,
                                           cudnnTensorDescriptor_t x_desc, void* x) {
  return run({handle, x_desc, w_desc, conv, y_desc}, Direction::kData, algo, {x, w, y, x, space},
             bytes, alpha, beta);
}

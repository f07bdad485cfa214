// Launches the operations' kernels, and sums within a block. For .cu files only. Used on the
// backend's thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <utility>

#include "common/base/error.h"
#include "common/device/cuda_check.h"
#include "models/ops/arithmetic.h"
#include "models/ops/cuda/shared.h"

namespace pushpull::ops::cuda {

// Returns the grid size of a launch. Shapes are below 2^31 elements (Spec::check), and every
// block has at least one.
inline unsigned grid(int64_t blocks) {
  PP_ASSERT(blocks > 0 && blocks <= INT32_MAX);
  return static_cast<unsigned>(blocks);
}

// Creates an operation for the activations' type.
template <template <class> class Operation, class Made, class... Arguments>
std::unique_ptr<Made> make_typed(Shared& shared, const Arguments&... arguments) {
  switch (shared.precision) {
    case Precision::kFp32:
    case Precision::kTf32:
      return std::make_unique<Operation<float>>(shared, arguments...);
    case Precision::kBf16:
      return std::make_unique<Operation<Bf16>>(shared, arguments...);
    case Precision::kFp16:
      return std::make_unique<Operation<Fp16>>(shared, arguments...);
  }
  PP_ASSERT(!"a precision");
  return nullptr;
}

// Calls `run` with a null pointer to the activations' type.
template <class Run>
void with_type(Precision precision, const Run& run) {
  switch (precision) {
    case Precision::kFp32:
    case Precision::kTf32:
      return run(static_cast<float*>(nullptr));
    case Precision::kBf16:
      return run(static_cast<Bf16*>(nullptr));
    case Precision::kFp16:
      return run(static_cast<Fp16*>(nullptr));
  }
}

inline bool are_aligned(std::initializer_list<const void*> tensors) {
  return std::all_of(tensors.begin(), tensors.end(), is_aligned);
}

// Calls launch<kVector>() with ImagePass::vector's number of elements.
template <class T, class Launch>
void with_vector(int vector, const Launch& launch) {
  if (vector == kPackSize<T>) return launch.template operator()<kPackSize<T>>();
  if (vector == kPackSize<T> / 2) return launch.template operator()<kPackSize<T> / 2>();
  launch.template operator()<1>();
}

template <class T>
const T* as(const Activation* activation) {
  return static_cast<const T*>(activation);
}
template <class T>
T* as(Activation* activation) {
  return static_cast<T*>(activation);
}

// Sums each of kCount values over the block's threads along the tree of tree_sum: first within the
// warps, then over them. All threads get the sums. Every thread of the block must call it.
template <int kCount>
__device__ void block_sum(float (&values)[kCount]) {
  constexpr int kWarps = kBlock / kWarp;
  __shared__ float of_warp[kCount][kWarps];
  const unsigned lane = threadIdx.x % kWarp;
  PP_UNROLL
  for (int i = 0; i < kCount; ++i) {
    PP_UNROLL
    for (int reach = kWarp / 2; reach > 0; reach /= 2) {
      values[i] += __shfl_xor_sync(~0U, values[i], reach);
    }
    if (lane == 0) of_warp[i][threadIdx.x / kWarp] = values[i];
  }
  __syncthreads();
  PP_UNROLL
  for (int i = 0; i < kCount; ++i) {
    values[i] = of_warp[i][lane % kWarps];
    PP_UNROLL
    for (int reach = kWarps / 2; reach > 0; reach /= 2) {
      values[i] += __shfl_xor_sync(~0U, values[i], reach);
    }
  }
  __syncthreads();  // before the next call writes it
}
__device__ inline float block_sum(float value) {
  float values[1] = {value};
  block_sum(values);
  return values[0];
}

}  // namespace pushpull::ops::cuda

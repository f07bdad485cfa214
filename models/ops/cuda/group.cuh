// Sums and maxima over the threads of a group: a warp or a block, which processes one row. For .cu
// files only.
#pragma once

#include <cstdint>

#include "models/ops/cuda/launch.cuh"

namespace pushpull::ops::cuda {

inline bool by_warp(int64_t width) { return width <= kWarpRow; }
inline unsigned row_blocks(int64_t rows, int64_t width) {
  return grid(by_warp(width) ? pieces(rows, kBlock / kWarp) : rows);
}

template <int kWidth>
__device__ int64_t row_of_group() {
  return int64_t{blockIdx.x} * (kBlock / kWidth) + threadIdx.x / kWidth;
}
template <int kWidth>
__device__ int thread_of_group() {
  return static_cast<int>(threadIdx.x) % kWidth;
}

// Merges the values of a group's threads along the tree of tree_sum: within the warps, then over
// them. All threads get the result, and every thread of the group must call it.
template <int kWidth, class Value, class Merge>
__device__ Value merge_group(Value value, const Merge& merge) {
  PP_UNROLL
  for (int reach = kWarp / 2; reach > 0; reach /= 2) {
    value = merge(value, __shfl_xor_sync(~0U, value, reach));
  }
  if constexpr (kWidth > kWarp) {
    constexpr int kWarps = kWidth / kWarp;
    __shared__ Value of_warp[kWarps];
    const unsigned lane = threadIdx.x % kWarp;
    if (lane == 0) of_warp[threadIdx.x / kWarp] = value;
    __syncthreads();
    value = of_warp[lane % kWarps];
    PP_UNROLL
    for (int reach = kWarps / 2; reach > 0; reach /= 2) {
      value = merge(value, __shfl_xor_sync(~0U, value, reach));
    }
    __syncthreads();  // before the next call writes it
  }
  return value;
}
template <int kWidth, class Value>
__device__ Value group_sum(Value value) {
  return merge_group<kWidth>(value, [](Value a, Value b) { return a + b; });
}
template <int kWidth>
__device__ float group_max(float value) {
  return merge_group<kWidth>(value, [](float a, float b) { return b > a ? b : a; });
}
template <int kWidth>
__device__ int32_t group_min(int32_t value) {
  return merge_group<kWidth>(value, [](int32_t a, int32_t b) { return b < a ? b : a; });
}

// Calls launch<kPacked, kWidth>() with the width of the group for a row.
template <class Launch>
void with_rows(bool packed, int64_t width, const Launch& launch) {
  if (by_warp(width)) {
    if (packed) return launch.template operator()<true, kWarp>();
    return launch.template operator()<false, kWarp>();
  }
  if (packed) return launch.template operator()<true, kBlock>();
  launch.template operator()<false, kBlock>();
}

}  // namespace pushpull::ops::cuda

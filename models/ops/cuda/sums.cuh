// Sums and maxima over the threads of a group, a warp or a block, which processes one row; and the
// ends of sums of columns. For .cu files only.
#pragma once

#include <cstdint>

#include "models/ops/cuda/launch.cuh"
#include "models/ops/cuda/row_pass.h"

namespace pushpull::ops::cuda {

// Ends the sums of columns: over the warps of a block, and over chunks. For .cu files only.

// Returns the sum of value(0), ..., value(count - 1) for the column of each lane. Each warp adds a
// part of them (sum_part). Every thread of the block must call it, once in a kernel.
template <class Value>
__device__ double sum_over_warps(int64_t count, const Value& value) {
  __shared__ double parts[RowPass::kWarps][kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  parts[warp][lane] = sum_part(count, static_cast<int>(warp), value);
  __syncthreads();
  return sum_warps(&parts[0][lane], kWarp);
}

// Adds up the warps' kSums sums per column and writes them to the chunk's rows of `chunks`
// [chunks, kSums, columns], or to `results` if there is only one chunk. Every thread of the block
// must call it, once in a kernel.
//   sums: of the thread's columns.
template <int kSums, int kPack>
__device__ void finish_block(const RowPass& pass, const RowPass::Block& block,
                             const float (&sums)[kSums][kPack], float unscale, float* chunks,
                             const ColumnResults& results) {
  constexpr int kTile = kWarp * kPack;
  constexpr int kStride = kPack + 1;  // the lanes of a warp write to different banks
  __shared__ float of_warps[kSums][RowPass::kWarps][kWarp * kStride];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  PP_UNROLL
  for (int s = 0; s < kSums; ++s) {
    PP_UNROLL
    for (int j = 0; j < kPack; ++j) of_warps[s][warp][lane * kStride + j] = sums[s][j];
  }
  __syncthreads();
  const int64_t column = block.column + threadIdx.x;
  if (threadIdx.x >= kTile || column >= pass.columns) return;
  PP_UNROLL
  for (int s = 0; s < kSums; ++s) {
    const float sum =
        sum_warps(&of_warps[s][0][threadIdx.x + threadIdx.x / kPack], kWarp * kStride);
    if (pass.chunks > 1) {
      chunks[(block.chunk * kSums + s) * pass.columns + column] = sum;
    } else if (float* to = results.of[s]; to != nullptr) {
      to[column] = sum * unscale;
    }
  }
}

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

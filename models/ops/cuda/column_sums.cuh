// Ends the sums of columns: over the warps of a block, and over chunks. For .cu files only.
#pragma once

#include <cstdint>

#include "models/ops/cuda/launch.cuh"
#include "models/ops/cuda/row_pass.h"

namespace pushpull::ops::cuda {

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

}  // namespace pushpull::ops::cuda

// Kernels for updates and norms of slices: one thread block per tile. The work of each thread is in
// common/device/slice_update.h.
#include <cstddef>

#include "common/base/error.h"
#include "common/device/cuda_check.h"
#include "common/device/cuda_kernels.h"

namespace pushpull::device {

namespace {

constexpr size_t kSharedBytes = size_t{48} << 10;  // available to a kernel without opting in
constexpr int kWide = 4;
constexpr int kBlocksAtOnce = 3;  // minimum per multiprocessor: 80 registers per thread

// Norm tiles per thread block: their running sums together keep a warp busy.
constexpr int kNormTiles = 4;
constexpr int kNormThreads = kUpdateThreads / kNormTiles;

template <int kWidth>
__global__ void __launch_bounds__(kUpdateThreads, kBlocksAtOnce)
    update_kernel(const SliceBatch batch) {
  extern __shared__ float4 stacks[];
  update_tile<kWidth>(batch, blockIdx.x, static_cast<int>(threadIdx.x), kUpdateThreads,
                      reinterpret_cast<float*>(stacks));
}

template <int kWidth>
__global__ void __launch_bounds__(kUpdateThreads)
    square_kernel(const SliceBatch batch, float divisor, double* squares) {
  extern __shared__ float4 shared[];
  __shared__ double sums[kNormTiles][kNormSums];
  auto* means = reinterpret_cast<float*>(shared);  // kNormBlock per tile, followed by the stacks
  const auto thread = static_cast<int>(threadIdx.x);
  float* stacks = means + kNormTiles * kNormBlock;
  const int64_t first = int64_t{blockIdx.x} * kNormTiles;
  if (const int mine = thread / kNormThreads; first + mine < batch.tile_count) {
    mean_gradient<kWidth>(batch, first + mine, divisor, thread % kNormThreads, kNormThreads,
                          means + mine * kNormBlock, {stacks, thread, kUpdateThreads, kWidth});
  }
  __syncthreads();
  if (thread < kNormTiles * kNormSums) {
    const int tile = thread / kNormSums;
    const int index = thread % kNormSums;
    if (first + tile < batch.tile_count) {
      sums[tile][index] = running_sum_of_squares(means + tile * kNormBlock,
                                                 batch.tiles[first + tile].elements, index);
    }
  }
  __syncthreads();
  if (thread < kNormTiles && first + thread < batch.tile_count) {
    squares[first + thread] = sum_of_running_sums(sums[thread]);
  }
}

__global__ void __launch_bounds__(kUpdateThreads)
    measure_kernel(const SliceBatch batch, double* squares) {
  extern __shared__ float4 shared[];
  __shared__ double sums[2][kNormSums];
  auto* weights = reinterpret_cast<float*>(shared);  // then the directions, then the stacks
  float* directions = weights + kNormBlock;
  const auto thread = static_cast<int>(threadIdx.x);
  trust_tile(batch, blockIdx.x, thread, kUpdateThreads, weights, directions,
             {directions + kNormBlock, thread, kUpdateThreads, 1});
  __syncthreads();
  if (thread < 2 * kNormSums) {
    const int of = thread / kNormSums;
    const int index = thread % kNormSums;
    sums[of][index] = running_sum_of_squares(of == 0 ? weights : directions,
                                             batch.tiles[blockIdx.x].elements, index);
  }
  __syncthreads();
  if (thread < 2) squares[2 * int64_t{blockIdx.x} + thread] = sum_of_running_sums(sums[thread]);
}

size_t stack_bytes(const SliceBatch& batch, int width) {
  return static_cast<size_t>(batch.depth) * kUpdateThreads * static_cast<size_t>(width) *
         sizeof(float);
}

}  // namespace

void launch_update(const SliceBatch& batch, cudaStream_t stream) {
  if (batch.tile_count == 0) return;
  const auto blocks = static_cast<unsigned>(batch.tile_count);
  if (const size_t bytes = stack_bytes(batch, kWide); bytes <= kSharedBytes) {
    update_kernel<kWide><<<blocks, kUpdateThreads, bytes, stream>>>(batch);
  } else {
    PP_ASSERT(stack_bytes(batch, 1) <= kSharedBytes);
    update_kernel<1><<<blocks, kUpdateThreads, stack_bytes(batch, 1), stream>>>(batch);
  }
  PP_CUDA_LAUNCHED("update_kernel");
}

void launch_square(const SliceBatch& batch, float divisor, double* squares, cudaStream_t stream) {
  if (batch.tile_count == 0) return;
  constexpr size_t kMeans = sizeof(float) * kNormTiles * kNormBlock;
  constexpr size_t kSumBytes = sizeof(double) * kNormTiles * kNormSums;
  constexpr size_t kStacks = kSharedBytes - kMeans - kSumBytes;
  const auto blocks = static_cast<unsigned>((batch.tile_count + kNormTiles - 1) / kNormTiles);
  if (const size_t bytes = stack_bytes(batch, kWide); bytes <= kStacks) {
    square_kernel<kWide>
        <<<blocks, kUpdateThreads, kMeans + bytes, stream>>>(batch, divisor, squares);
  } else {
    PP_ASSERT(stack_bytes(batch, 1) <= kStacks);
    square_kernel<1><<<blocks, kUpdateThreads, kMeans + stack_bytes(batch, 1), stream>>>(
        batch, divisor, squares);
  }
  PP_CUDA_LAUNCHED("square_kernel");
}

void launch_measure(const SliceBatch& batch, double* squares, cudaStream_t stream) {
  if (batch.tile_count == 0) return;
  constexpr size_t kFloats = sizeof(float) * 2 * kNormBlock;
  constexpr size_t kSumBytes = sizeof(double) * 2 * kNormSums;
  PP_ASSERT(kFloats + kSumBytes + stack_bytes(batch, 1) <= kSharedBytes);
  measure_kernel<<<static_cast<unsigned>(batch.tile_count), kUpdateThreads,
                   kFloats + stack_bytes(batch, 1), stream>>>(batch, squares);
  PP_CUDA_LAUNCHED("measure_kernel");
}

}  // namespace pushpull::device

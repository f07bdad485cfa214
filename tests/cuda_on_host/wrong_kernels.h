// Launches for the tests of the stand-in itself.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace cuda_on_host {

enum class Wrong {
  kRightReverse,
  kNoBarrier,
  kHalfWaits,
  kTwoBarriers,
  kHalfShuffles,
  kSumOfWarp,
  kWriteAt,
  kWritePairAt,
  kWriteLaunchMemory,
  kReadShared,
  kMuchShared,
  kCount,
  kNoBlocks,
  kManyThreads,
};

// values: 64 floats on the device; at: the index for the kernels that write one element.
void launch(Wrong what, float* values, int64_t at, cudaStream_t stream);

}  // namespace cuda_on_host

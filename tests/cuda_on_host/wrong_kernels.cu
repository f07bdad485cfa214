// Faulty and correct kernels for block_test.cpp.
#include "tests/cuda_on_host/wrong_kernels.h"

namespace cuda_on_host {

namespace {

constexpr int kThreads = 64;

// Each thread reads the value that its neighbour wrote.
template <bool kWaits>
__global__ void reverse(float* values) {
  __shared__ float all[kThreads];
  const unsigned t = threadIdx.x;
  all[t] = values[t];
  if (kWaits) __syncthreads();
  values[t] = all[kThreads - 1 - t];
}

__global__ void half_waits(float* values) {
  if (threadIdx.x < 32) __syncthreads();
  values[threadIdx.x] = 1.0F;
}

__global__ void two_barriers(float* values) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  values[threadIdx.x] = 1.0F;
}

__global__ void half_shuffles(float* values) {
  if (threadIdx.x % 2 == 0) values[threadIdx.x] = __shfl_xor_sync(~0U, 1.0F, 2);
}

__global__ void sum_of_warp(float* values) {
  float sum = values[threadIdx.x];
  for (int reach = 16; reach > 0; reach /= 2) sum += __shfl_xor_sync(~0U, sum, reach);
  values[threadIdx.x] = sum;
}

__global__ void write_at(float* values, int64_t at) { values[at] = 1.0F; }

__global__ void write_pair_at(float* values, int64_t at) {
  *reinterpret_cast<float2*>(values + at) = make_float2(1.0F, 2.0F);
}

__global__ void write_launch_memory(int at) {
  extern __shared__ float memory[];
  memory[at] = 1.0F;
}

// Reads NaN, because no thread has written the memory.
__global__ void read_shared(float* values) {
  extern __shared__ float memory[];
  __shared__ float variable[kThreads];
  values[threadIdx.x] = blockIdx.x == 0 ? memory[threadIdx.x] : variable[threadIdx.x];
  __syncthreads();
  memory[threadIdx.x] = variable[threadIdx.x] = 1.0F;
}

__global__ void much_shared(float* values) {
  __shared__ float all[48 * 256];
  extern __shared__ float more[];
  all[threadIdx.x] = more[threadIdx.x] = values[threadIdx.x];
}

__global__ void count(int* flags) { atomicOr(flags, 1 << (blockIdx.x % 8)); }

}  // namespace

void launch(Wrong what, float* values, int64_t at, cudaStream_t stream) {
  switch (what) {
    case Wrong::kRightReverse:
      reverse<true><<<1, kThreads, 0, stream>>>(values);
      return;
    case Wrong::kNoBarrier:
      reverse<false><<<1, kThreads, 0, stream>>>(values);
      return;
    case Wrong::kHalfWaits:
      half_waits<<<1, kThreads, 0, stream>>>(values);
      return;
    case Wrong::kTwoBarriers:
      two_barriers<<<1, kThreads, 0, stream>>>(values);
      return;
    case Wrong::kHalfShuffles:
      half_shuffles<<<1, kThreads, 0, stream>>>(values);
      return;
    case Wrong::kSumOfWarp:
      sum_of_warp<<<1, kThreads, 0, stream>>>(values);
      return;
    case Wrong::kWriteAt:
      write_at<<<1, 1, 0, stream>>>(values, at);
      return;
    case Wrong::kWritePairAt:
      write_pair_at<<<1, 1, 0, stream>>>(values, at);
      return;
    case Wrong::kWriteLaunchMemory:
      write_launch_memory<<<1, 1, 64, stream>>>(static_cast<int>(at));
      return;
    case Wrong::kReadShared:
      read_shared<<<2, kThreads, kThreads * sizeof(float), stream>>>(values);
      return;
    case Wrong::kMuchShared:
      much_shared<<<1, kThreads, kThreads * sizeof(float), stream>>>(values);
      return;
    case Wrong::kCount:
      count<<<8, 1, 0, stream>>>(reinterpret_cast<int*>(values));
      return;
    case Wrong::kNoBlocks:
      count<<<0, 1, 0, stream>>>(reinterpret_cast<int*>(values));
      return;
    case Wrong::kManyThreads:
      count<<<1, 1025, 0, stream>>>(reinterpret_cast<int*>(values));
      return;
  }
}

}  // namespace cuda_on_host

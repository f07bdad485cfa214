#include <algorithm>
#include <cstdint>

#include "common/device/cuda_check.h"
#include "common/device/cuda_kernels.h"

namespace pushpull::device {

namespace {

constexpr int kThreads = 256;
constexpr size_t kMaxBlocks = size_t{1} << 16;  // beyond this, each thread takes several elements
constexpr size_t kWide = 4;                     // floats in 16 bytes, the widest load

unsigned blocks_for(size_t items) {
  return static_cast<unsigned>(
      std::clamp((items + kThreads - 1) / kThreads, size_t{1}, kMaxBlocks));
}

bool is_wide(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

__device__ size_t first_item() { return size_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ size_t items_at_once() { return size_t{gridDim.x} * blockDim.x; }

// wide: number of elements processed as float4; the rest are processed one by one.
__global__ void add_kernel(const float* left, float* right, size_t n, size_t wide) {
  const auto* left4 = reinterpret_cast<const float4*>(left);
  auto* right4 = reinterpret_cast<float4*>(right);
  for (size_t i = first_item(); i < wide / kWide; i += items_at_once()) {
    const float4 a = left4[i];
    const float4 b = right4[i];
    right4[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
  }
  for (size_t i = wide + first_item(); i < n; i += items_at_once()) right[i] = left[i] + right[i];
}

// Returns true if all exponent bits are set.
__device__ bool is_non_finite(float x) { return (__float_as_uint(x) & 0x7f800000U) == 0x7f800000U; }

// The blocks of a row take one slice, then the slice that is a grid of rows further on.
__global__ void non_finite_kernel(const float* x, size_t n, size_t slice, bool is_wide,
                                  int64_t mark, int64_t* marks) {
  for (size_t s = blockIdx.y; s * slice < n; s += gridDim.y) {
    const float* first = x + s * slice;
    const size_t rest = n - s * slice;
    const size_t size = slice < rest ? slice : rest;
    const size_t wide = is_wide ? size / kWide * kWide : 0;
    bool found = false;
    const auto* first4 = reinterpret_cast<const float4*>(first);
    for (size_t i = first_item(); i < wide / kWide; i += items_at_once()) {
      const float4 v = first4[i];
      found |= is_non_finite(v.x) || is_non_finite(v.y) || is_non_finite(v.z) || is_non_finite(v.w);
    }
    for (size_t i = wide + first_item(); i < size; i += items_at_once()) {
      found |= is_non_finite(first[i]);
    }
    // all blocks that find such a value store the same mark
    if (__syncthreads_or(static_cast<int>(found)) != 0 && threadIdx.x == 0) marks[s] = mark;
  }
}

}  // namespace

void launch_add(const float* left, float* right, size_t n, cudaStream_t stream) {
  if (n == 0) return;
  const size_t wide = is_wide(left) && is_wide(right) ? n / kWide * kWide : 0;
  add_kernel<<<blocks_for(wide > 0 ? n / kWide : n), kThreads, 0, stream>>>(left, right, n, wide);
  PP_CUDA_LAUNCHED("add_kernel");
}

void launch_find_non_finite(const float* x, size_t n, size_t slice, int64_t mark, int64_t* marks,
                            cudaStream_t stream) {
  constexpr size_t kMaxRows = 65535;  // CUDA's limit
  constexpr size_t kLoads = 4;        // of a thread
  if (n == 0) return;
  const size_t rows = std::min((n + slice - 1) / slice, kMaxRows);
  const size_t blocks = blocks_for(std::min(n, slice) / (kWide * kLoads));
  const dim3 grid(static_cast<unsigned>(std::min(blocks, std::max(kMaxBlocks / rows, size_t{1}))),
                  static_cast<unsigned>(rows));
  non_finite_kernel<<<grid, kThreads, 0, stream>>>(x, n, slice, is_wide(x) && slice % kWide == 0,
                                                   mark, marks);
  PP_CUDA_LAUNCHED("non_finite_kernel");
}

cudaError_t probe_code() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, add_kernel);
}

}  // namespace pushpull::device

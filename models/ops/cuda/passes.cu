#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "common/device/cuda/check.h"
#include "models/ops/cuda/passes.h"

namespace pushpull::ops::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 65'536;  // each thread takes several elements beyond
constexpr int kTileRows = 8;            // of a tile that a block of kThreads moves at once

int blocks_for(int64_t elements) {
  return static_cast<int>(std::min((elements + kThreads - 1) / kThreads, kMaxBlocks));
}

// This thread's first element, and the step to its next.
__device__ int64_t first_element() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ int64_t element_step() { return int64_t{gridDim.x} * blockDim.x; }

__device__ float to_float(float x) { return x; }
__device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ float to_float(__half x) { return __half2float(x); }

template <class T>
__device__ T from_float(float x);
template <>
__device__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ __half from_float<__half>(float x) {
  return __float2half_rn(x);
}

template <class T>
__global__ void unroll_kernel(Im2col plan, const T* x, int64_t rows, T* columns) {
  const int64_t width = plan.columns();
  for (int64_t i = first_element(); i < rows * width; i += element_step()) {
    const int64_t source = plan.source(i / width, i % width);
    columns[i] = source < 0 ? from_float<T>(0.0F) : x[source];
  }
}

template <class T>
__global__ void fold_kernel(Im2col plan, const float* columns, int64_t elements, T* dx) {
  for (int64_t i = first_element(); i < elements; i += element_step()) {
    dx[i] = from_float<T>(plan.gather(i, [columns](int64_t at) { return columns[at]; }));
  }
}

// One column more than a tile has spreads its columns over all banks of shared memory.
template <class T>
__global__ void transpose_kernel(TransposePlan plan, const T* from, T* to) {
  constexpr int kTile = TransposePlan::kTile;
  __shared__ T elements[kTile][kTile + 1];
  const auto x = static_cast<int>(threadIdx.x);
  for (int64_t index = blockIdx.x; index < plan.tiles(); index += gridDim.x) {
    const TransposePlan::Tile tile = plan.tile(index);
    for (auto i = static_cast<int>(threadIdx.y); i < kTile; i += kTileRows) {
      const int64_t source = plan.source(tile, i, x);
      if (source >= 0) elements[i][x] = from[source];
    }
    __syncthreads();
    for (auto j = static_cast<int>(threadIdx.y); j < kTile; j += kTileRows) {
      const int64_t target = plan.target(tile, x, j);
      if (target >= 0) to[target] = elements[x][j];
    }
    __syncthreads();  // before the next tile is written
  }
}

template <class T>
__global__ void widen_kernel(const T* from, int64_t count, float factor, float* to) {
  for (int64_t i = first_element(); i < count; i += element_step()) {
    to[i] = to_float(from[i]) * factor;
  }
}

template <class T>
__global__ void add_row_kernel(RowShape shape, const T* row, bool relu, T* d) {
  for (int64_t i = first_element(); i < shape.rows * shape.columns; i += element_step()) {
    const float sum = to_float(d[i]) + to_float(row[i % shape.columns]);
    d[i] = from_float<T>(relu && sum <= 0.0F ? 0.0F : sum);
  }
}

// Calls f with a null pointer of the activations' type.
template <class F>
void with_type(const Shared& shared, F f) {
  switch (shared.precision) {
    case Precision::kBf16:
      return f(static_cast<__nv_bfloat16*>(nullptr));
    case Precision::kFp16:
      return f(static_cast<__half*>(nullptr));
    default:
      return f(static_cast<float*>(nullptr));
  }
}

}  // namespace

void unroll(Shared& shared, const Im2col& plan, const Activation* x, int64_t rows,
            Activation* columns) {
  with_type(shared, [&]<class T>(T*) {
    unroll_kernel<<<blocks_for(rows * plan.columns()), kThreads, 0, shared.stream>>>(
        plan, static_cast<const T*>(x), rows, static_cast<T*>(columns));
  });
  PP_CUDA_LAUNCHED("unroll");
}

void fold(Shared& shared, const Im2col& plan, const float* columns, int64_t elements,
          Activation* dx) {
  with_type(shared, [&]<class T>(T*) {
    fold_kernel<<<blocks_for(elements), kThreads, 0, shared.stream>>>(plan, columns, elements,
                                                                      static_cast<T*>(dx));
  });
  PP_CUDA_LAUNCHED("fold");
}

void transpose(Shared& shared, const TransposePlan& plan, const Activation* from, Activation* to) {
  const auto blocks = static_cast<int>(std::min(plan.tiles(), kMaxBlocks));
  with_type(shared, [&]<class T>(T*) {
    transpose_kernel<<<blocks, dim3(TransposePlan::kTile, kTileRows), 0, shared.stream>>>(
        plan, static_cast<const T*>(from), static_cast<T*>(to));
  });
  PP_CUDA_LAUNCHED("transpose");
}

void widen(Shared& shared, const Activation* from, int64_t count, float factor, float* to) {
  with_type(shared, [&]<class T>(T*) {
    widen_kernel<<<blocks_for(count), kThreads, 0, shared.stream>>>(static_cast<const T*>(from),
                                                                    count, factor, to);
  });
  PP_CUDA_LAUNCHED("widen");
}

void add_row(Shared& shared, const RowShape& shape, const Activation* row, bool relu,
             Activation* d) {
  with_type(shared, [&]<class T>(T*) {
    add_row_kernel<<<blocks_for(shape.rows * shape.columns), kThreads, 0, shared.stream>>>(
        shape, static_cast<const T*>(row), relu, static_cast<T*>(d));
  });
  PP_CUDA_LAUNCHED("add_row");
}

}  // namespace pushpull::ops::cuda

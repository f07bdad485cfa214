// One element per thread, in a grid-stride loop.
#include <algorithm>

#include "models/ops/cuda/launch.cuh"
#include "models/ops/cuda/passes.h"

namespace pushpull::ops::cuda {

namespace {

constexpr int64_t kMaxBlocks = 65'536;
constexpr int kTileRows = kBlock / TransposePlan::kTile;  // tile rows that a block moves at once

unsigned blocks_for(int64_t elements) {
  return grid(std::min(pieces(elements, kBlock), kMaxBlocks));
}

__device__ int64_t first_element() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ int64_t element_step() { return int64_t{gridDim.x} * blockDim.x; }

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

// The extra column spreads a tile's columns over all banks of shared memory.
template <class T>
__global__ void transpose_kernel(TransposePlan plan, const T* from, T* to) {
  constexpr int kTile = TransposePlan::kTile;
  // bytes, because a type with a constructor may not be in shared memory
  __shared__ alignas(T) unsigned char memory[kTile * (kTile + 1) * sizeof(T)];
  T* const elements = reinterpret_cast<T*>(memory);
  const auto x = static_cast<int>(threadIdx.x);
  for (int64_t index = blockIdx.x; index < plan.tiles(); index += gridDim.x) {
    const TransposePlan::Tile tile = plan.tile(index);
    for (auto i = static_cast<int>(threadIdx.y); i < kTile; i += kTileRows) {
      const int64_t source = plan.source(tile, i, x);
      if (source >= 0) elements[i * (kTile + 1) + x] = from[source];
    }
    __syncthreads();
    for (auto j = static_cast<int>(threadIdx.y); j < kTile; j += kTileRows) {
      const int64_t target = plan.target(tile, x, j);
      if (target >= 0) to[target] = elements[x * (kTile + 1) + j];
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

}  // namespace

void unroll(Shared& shared, const Im2col& plan, const Activation* x, int64_t rows,
            Activation* columns) {
  with_type(shared.precision, [&]<class T>(T* /*type*/) {
    unroll_kernel<<<blocks_for(rows * plan.columns()), kBlock, 0, shared.stream>>>(
        plan, as<T>(x), rows, as<T>(columns));
  });
  PP_CUDA_LAUNCHED("the unrolling of images");
}

void fold(Shared& shared, const Im2col& plan, const float* columns, int64_t elements,
          Activation* dx) {
  with_type(shared.precision, [&]<class T>(T* /*type*/) {
    fold_kernel<<<blocks_for(elements), kBlock, 0, shared.stream>>>(plan, columns, elements,
                                                                    as<T>(dx));
  });
  PP_CUDA_LAUNCHED("the folding of images");
}

void transpose(Shared& shared, const TransposePlan& plan, const Activation* from, Activation* to) {
  const unsigned blocks = grid(std::min(plan.tiles(), kMaxBlocks));
  with_type(shared.precision, [&]<class T>(T* /*type*/) {
    transpose_kernel<<<blocks, dim3(TransposePlan::kTile, kTileRows), 0, shared.stream>>>(
        plan, as<T>(from), as<T>(to));
  });
  PP_CUDA_LAUNCHED("a transposition");
}

void widen(Shared& shared, const Activation* from, int64_t count, float factor, float* to) {
  with_type(shared.precision, [&]<class T>(T* /*type*/) {
    widen_kernel<<<blocks_for(count), kBlock, 0, shared.stream>>>(as<T>(from), count, factor, to);
  });
  PP_CUDA_LAUNCHED("a cast to f32");
}

void add_row(Shared& shared, const RowShape& shape, const Activation* row, bool relu,
             Activation* d) {
  with_type(shared.precision, [&]<class T>(T* /*type*/) {
    add_row_kernel<<<blocks_for(shape.rows * shape.columns), kBlock, 0, shared.stream>>>(
        shape, as<T>(row), relu, as<T>(d));
  });
  PP_CUDA_LAUNCHED("the bias of a product");
}

}  // namespace pushpull::ops::cuda

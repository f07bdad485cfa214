// One element per thread, in a grid-stride loop.

#include <algorithm>

#include "models/ops/cuda/flat_pass.h"
#include "models/ops/cuda/image_pass.h"
#include "models/ops/cuda/launch.cuh"
#include "models/ops/cuda/passes.h"
#include "models/ops/cuda/row_pass.h"
#include "models/ops/cuda/sums.cuh"

namespace pushpull::ops::cuda {

// Masks, bias gradients, biases and casts, one pass each.

namespace {

template <class T, bool kPacked, bool kMask>
__global__ void __launch_bounds__(kBlock)
    sum_columns(const RowPass pass, const T* y, T* dy, float unscale, float* chunks,
                const ColumnResults results) {
  const RowPass::Block block = pass.block(blockIdx.x);
  float sums[1][kPackSize<T>];
  sum_rows<T, kPacked, kMask>(pass, block, static_cast<int>(threadIdx.x), y, dy, sums[0]);
  finish_block(pass, block, sums, unscale, chunks, results);
}

// One block per kWarp columns of one tensor of results.
__global__ void __launch_bounds__(kBlock)
    add_chunks(const float* chunks, int64_t count, int64_t columns, int64_t stride, float unscale,
               const ColumnResults results) {
  const int64_t tiles = pieces(columns, kWarp);
  const int64_t tensor = blockIdx.x / tiles;
  const int64_t column = (blockIdx.x - tensor * tiles) * kWarp + threadIdx.x % kWarp;
  const bool is_inside = column < columns;
  const float* first = chunks + tensor * columns + column;
  const double sum =
      sum_over_warps(is_inside ? count : 0, [&](int64_t i) { return first[i * stride]; });
  float* to = tensor == 0 ? results.of[0] : results.of[1];
  if (threadIdx.x < kWarp && is_inside) to[column] = unscaled(sum, unscale);
}

template <class T, int kVector>
__global__ void __launch_bounds__(kBlock)
    sum_planes(const ImagePass pass, const T* dy, float unscale, float* chunks, float* db) {
  const ImagePass::Block block = pass.block(blockIdx.x);
  float sum = 0.0F;
  for (uint32_t first = block.first; first < block.last; first += kRound) {
    float values[kPerThread];
    load_round<kVector>(dy, pass, block, first, threadIdx.x, values);
    sum += sum_of(values);
  }
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  if (pass.chunks == 1) {
    db[block.channel] = sum * unscale;
  } else {
    chunks[blockIdx.x] = sum;
  }
}

// One warp per channel.
__global__ void __launch_bounds__(kBlock)
    finish_planes(const float* chunks, uint32_t count, int64_t channels, float unscale, float* db) {
  const int64_t channel = (int64_t{blockIdx.x} * kBlock + threadIdx.x) / kWarp;
  if (channel >= channels) return;
  const float* of_channel = chunks + channel * count;
  const double sum = WarpSum{count}([=](uint32_t i) { return static_cast<double>(of_channel[i]); });
  if (threadIdx.x % kWarp == 0) {
    db[channel] = static_cast<float>(sum * static_cast<double>(unscale));
  }
}

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock)
    add_to_planes(const Divider by_area, const Divider by_channels, int64_t count, const float* b,
                  T* y) {
  add_channels<T, kPacked>(by_area, by_channels, count, blockIdx.x, static_cast<int>(threadIdx.x),
                           b, y);
}

template <class To, bool kPacked>
__global__ void __launch_bounds__(kBlock) cast(const float* from, int64_t count, To* to) {
  convert<float, To, kPacked>(from, count, blockIdx.x, static_cast<int>(threadIdx.x), to);
}

template <class T>
void mask_and_sum(Shared& shared, const LinearShape& shape, const T* y, T* dy, float* db) {
  const RowPass pass(shape.samples, shape.outputs, kPackSize<T>);
  const float unscale = 1.0F / shared.loss_scale;
  auto* chunks = static_cast<float*>(shared.scratch.data());
  const bool packed = pass.packed(dy) && (!shape.relu || pass.packed(y));
  const auto kernel = shape.relu
                          ? (packed ? sum_columns<T, true, true> : sum_columns<T, false, true>)
                          : (packed ? sum_columns<T, true, false> : sum_columns<T, false, false>);
  const ColumnResults results{{db}};
  kernel<<<grid(pass.blocks()), kBlock, 0, shared.stream>>>(pass, y, dy, unscale, chunks, results);
  PP_CUDA_LAUNCHED("the sums of a bias gradient");
  finish_columns(shared, pass, 1, chunks, results);
}

}  // namespace

void finish_columns(Shared& shared, const RowPass& pass, int sums, const float* chunks,
                    const ColumnResults& results) {
  if (pass.chunks == 1) return;
  int wanted = 0;
  while (wanted < sums && results.of[wanted] != nullptr) ++wanted;
  add_chunks<<<grid(wanted * pieces(pass.columns, kWarp)), kBlock, 0, shared.stream>>>(
      chunks, pass.chunks, pass.columns, sums * pass.columns, 1.0F / shared.loss_scale, results);
  PP_CUDA_LAUNCHED("the sums of columns");
}

void plan_mask_and_sum_rows(Shared& shared, const LinearShape& shape) {
  const int64_t chunks = plan_rows(shape.samples).chunks;
  if (chunks == 1) return;
  shared.need_scratch(static_cast<size_t>(chunks * shape.outputs) * sizeof(float));
}

void mask_and_sum_rows(Shared& shared, const LinearShape& shape, const Activation* y,
                       Activation* dy, float* db) {
  with_type(shared.precision,
            [&]<class T>(T* /*type*/) { mask_and_sum(shared, shape, as<T>(y), as<T>(dy), db); });
}

void plan_sum_channels(Shared& shared, const ImageShape& image) {
  shared.need_scratch(static_cast<size_t>(ImagePass(image).blocks()) * sizeof(float));
}

void sum_channels(Shared& shared, const ImageShape& image, const Activation* dy, float* db) {
  const ImagePass pass(image);
  const float unscale = 1.0F / shared.loss_scale;
  auto* chunks = static_cast<float*>(shared.scratch.data());
  with_type(shared.precision, [&]<class T>(T* /*type*/) {
    with_vector<T>(pass.vector<T>(is_aligned(dy)), [&]<int kVector>() {
      sum_planes<T, kVector>
          <<<grid(pass.blocks()), kBlock, 0, shared.stream>>>(pass, as<T>(dy), unscale, chunks, db);
    });
  });
  PP_CUDA_LAUNCHED("the sums of channels");
  if (pass.chunks == 1) return;
  finish_planes<<<grid(pieces(pass.channels * kWarp, kBlock)), kBlock, 0, shared.stream>>>(
      chunks, pass.chunks, pass.channels, unscale, db);
  PP_CUDA_LAUNCHED("channels' sums");
}

void add_bias(Shared& shared, const ImageShape& image, const float* b, Activation* y) {
  const int64_t area = image.height * image.width;
  with_type(shared.precision, [&]<class T>(T* /*type*/) {
    const auto kernel = is_aligned(y) ? add_to_planes<T, true> : add_to_planes<T, false>;
    kernel<<<grid(flat_blocks(image.size())), kBlock, 0, shared.stream>>>(
        Divider(area), Divider(image.channels), image.size(), b, as<T>(y));
  });
  PP_CUDA_LAUNCHED("the addition of a bias");
}

void cast_weights(Shared& shared, const float* from, int64_t count, Activation* to) {
  with_type(shared.precision, [&]<class T>(T* /*type*/) {
    const auto kernel = is_aligned(from) && is_aligned(to) ? cast<T, true> : cast<T, false>;
    kernel<<<grid(flat_blocks(count)), kBlock, 0, shared.stream>>>(from, count, as<T>(to));
  });
  PP_CUDA_LAUNCHED("the cast of weights");
}

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

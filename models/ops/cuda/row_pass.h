// Sums the columns of a matrix [N, M] and masks it in the same pass. A block processes a chunk of
// rows of a tile of columns: each of the 32 lanes of a warp reads one pack of a row, and the
// block's warps process the rows in turn. The sums of the chunks are added by another kernel, in
// f64: a block processes 32 columns, and each of its warps adds every eighth chunk. Pure.
#pragma once

#include <cstdint>

#include "models/ops/arithmetic.h"
#include "models/ops/ops.h"

namespace pushpull::ops::cuda {

struct RowPass {
  static constexpr int kWarps = kBlock / kWarp;
  static constexpr int kBatch = 4;  // rows in flight per thread

  int64_t rows = 0;
  int64_t columns = 0;
  int64_t chunk = 0;
  int64_t chunks = 0;
  int64_t tile = 0;  // columns
  int64_t tiles = 0;

  RowPass(int64_t matrix_rows, int64_t matrix_columns, int pack_size)
      : rows(matrix_rows),
        columns(matrix_columns),
        chunk(plan_rows(rows).chunk),
        chunks(plan_rows(rows).chunks),
        tile(int64_t{kWarp} * pack_size),
        tiles(pieces(columns, tile)) {}

  int64_t blocks() const { return chunks * tiles; }
  template <class T>
  bool packed(const T* first) const {
    return columns % kPackSize<T> == 0 && is_aligned(first);
  }

  struct Block {
    int64_t chunk;
    int64_t column;  // first column
    int64_t first;   // first row
    int64_t last;    // one past the last row
  };
  PP_HOST_DEVICE Block block(int64_t index) const {
    const int64_t of_rows = index / tiles;
    const int64_t first = of_rows * chunk;
    return {of_rows, (index - of_rows * tiles) * tile, first,
            rows - first < chunk ? rows : first + chunk};
  }
};

// Computes a thread's part: sums its columns over its rows; masks dy by y in place if kMask.
template <class T, bool kPacked, bool kMask>
PP_HOST_DEVICE void sum_rows(const RowPass& pass, const RowPass::Block& block, int thread,
                             const T* y, T* dy, float (&sums)[kPackSize<T>]) {
  constexpr int kCount = kPackSize<T>;
  const int64_t column = block.column + int64_t{thread % kWarp} * kCount;
  const int64_t width = column < pass.columns ? pass.columns - column : 0;
  PP_UNROLL
  for (int j = 0; j < kCount; ++j) sums[j] = 0.0F;
  for (int64_t row = block.first + thread / kWarp; row < block.last;
       row += RowPass::kWarps * RowPass::kBatch) {
    float gradients[RowPass::kBatch][kCount];
    float outputs[RowPass::kBatch][kCount];
    PP_UNROLL
    for (int i = 0; i < RowPass::kBatch; ++i) {  // all loads before the first store
      const int64_t at = (row + i * RowPass::kWarps) * pass.columns + column;
      const int64_t count = row + i * RowPass::kWarps < block.last ? width : 0;
      load_pack<kPacked, kCount>(dy + at, count, gradients[i]);
      if constexpr (kMask) load_pack<kPacked, kCount>(y + at, count, outputs[i]);
    }
    PP_UNROLL
    for (int i = 0; i < RowPass::kBatch; ++i) {
      PP_UNROLL
      for (int j = 0; j < kCount; ++j) {
        if constexpr (kMask) gradients[i][j] = relu_gradient(outputs[i][j], gradients[i][j]);
        sums[j] += gradients[i][j];
      }
      const int64_t at = (row + i * RowPass::kWarps) * pass.columns + column;
      const int64_t count = row + i * RowPass::kWarps < block.last ? width : 0;
      if constexpr (kMask) store_pack<kPacked, kCount>(gradients[i], count, dy + at);
    }
  }
}

// Adds up a column's sums in the order of the warps.
//   of_warp: the first warp's sum; the next ones follow every `stride`.
template <class Sum>
PP_HOST_DEVICE Sum sum_warps(const Sum* of_warp, int64_t stride) {
  Sum sum = of_warp[0];
  PP_UNROLL
  for (int warp = 1; warp < RowPass::kWarps; ++warp) sum += of_warp[warp * stride];
  return sum;
}

// Returns a warp's part of the sum of value(0), ..., value(count - 1): every kWarps-th of them.
template <class Value>
PP_HOST_DEVICE double sum_part(int64_t count, int warp, const Value& value) {
  constexpr int kBatch = 8;  // in flight
  double sum = 0.0;
  for (int64_t first = warp; first < count; first += RowPass::kWarps * kBatch) {
    float values[kBatch];
    PP_UNROLL
    for (int i = 0; i < kBatch; ++i) {  // all loads before the first addition
      const int64_t at = first + i * RowPass::kWarps;
      values[i] = at < count ? value(at) : 0.0F;
    }
    PP_UNROLL
    for (int i = 0; i < kBatch; ++i) sum += static_cast<double>(values[i]);
  }
  return sum;
}

// The tensors that sums of columns go to; the second is null if it is not wanted.
struct ColumnResults {
  float* of[2] = {};
};

// Returns a sum of a column over chunks. unscale: 1 / loss scale.
PP_HOST_DEVICE inline float unscaled(double sum, float unscale) {
  return static_cast<float>(sum * static_cast<double>(unscale));
}

}  // namespace pushpull::ops::cuda

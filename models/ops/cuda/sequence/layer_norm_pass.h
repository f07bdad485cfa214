// The per-thread part of layer normalisation. A group of threads (a warp or a block) processes a
// row, each thread every `threads`-th pack of it. The first read of a row brings it into the first
// cache, where the later ones find it. Gradients of parameters are summed by columns: a thread sums
// a pack of columns over a chunk of rows. Pure.
#pragma once

#include <cstdint>

#include "models/ops/arithmetic.h"
#include "models/ops/layer_norm.h"

namespace pushpull::ops::cuda {

// The statistics of a row, kept for backward.
struct RowStatistics {
  float mean;
  float inverse;  // 1 / deviation
};

// Calls visit(first element, number of elements) for each pack of a thread in a row.
template <int kCount, class Visit>
PP_HOST_DEVICE void for_each_pack_of_row(int64_t width, int thread, int threads,
                                         const Visit& visit) {
  for (int64_t first = int64_t{thread} * kCount; first < width;
       first += int64_t{threads} * kCount) {
    visit(first, width - first < kCount ? width - first : int64_t{kCount});
  }
}

// Returns true if rows are whole packs. The tensors must be aligned as well.
template <class T>
bool has_whole_packs(int64_t width) {
  return width % kPackSize<T> == 0;
}

// Returns a thread's sum of x - mean, or of its square.
template <class T, bool kPacked, bool kSquare>
PP_HOST_DEVICE float sum_of_row(const T* x, int64_t width, float mean, int thread, int threads) {
  constexpr int kCount = kPackSize<T>;
  float sum = 0.0F;
  for_each_pack_of_row<kCount>(width, thread, threads, [&](int64_t first, int64_t elements) {
    float values[kCount];
    load_pack<kPacked, kCount>(x + first, elements, values);
    PP_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const float distance = values[i] - mean;
      if (i < elements) sum += kSquare ? distance * distance : distance;
    }
  });
  return sum;
}

PP_HOST_DEVICE inline float mean_of(float sum, int64_t width) {
  return static_cast<float>(static_cast<double>(sum) / static_cast<double>(width));
}
PP_HOST_DEVICE inline float inverse_of(float squares, int64_t width, float epsilon) {
  return inverse_deviation(static_cast<double>(squares) / static_cast<double>(width), epsilon);
}

//   shift: null without centring.
template <class T, bool kPacked>
PP_HOST_DEVICE void normalise_row(const RowStatistics& row, const T* x, const float* scale,
                                  const float* shift, int64_t width, int thread, int threads,
                                  T* y) {
  constexpr int kCount = kPackSize<T>;
  for_each_pack_of_row<kCount>(width, thread, threads, [&](int64_t first, int64_t elements) {
    float values[kCount];
    float scales[kCount];
    float shifts[kCount] = {};
    load_pack<kPacked, kCount>(x + first, elements, values);
    load_pack<kPacked, kCount>(scale + first, elements, scales);
    if (shift != nullptr) load_pack<kPacked, kCount>(shift + first, elements, shifts);
    PP_UNROLL
    for (int i = 0; i < kCount; ++i) {
      values[i] = (values[i] - row.mean) * row.inverse * scales[i] + shifts[i];
    }
    store_pack<kPacked, kCount>(values, elements, y + first);
  });
}

// Sums over a row of g = dy * scale and of g h.
struct RowGradient {
  float g = 0.0F;
  float product = 0.0F;
};

template <class T, bool kPacked>
PP_HOST_DEVICE RowGradient sum_gradients(const RowStatistics& row, const T* x, const T* dy,
                                         const float* scale, int64_t width, int thread,
                                         int threads) {
  constexpr int kCount = kPackSize<T>;
  RowGradient sums;
  for_each_pack_of_row<kCount>(width, thread, threads, [&](int64_t first, int64_t elements) {
    float values[kCount];
    float gradients[kCount];
    float scales[kCount];
    load_pack<kPacked, kCount>(x + first, elements, values);
    load_pack<kPacked, kCount>(dy + first, elements, gradients);
    load_pack<kPacked, kCount>(scale + first, elements, scales);
    PP_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const float h = (values[i] - row.mean) * row.inverse;
      const float g = gradients[i] * scales[i];
      sums.g += i < elements ? g : 0.0F;
      sums.product += i < elements ? g * h : 0.0F;
    }
  });
  return sums;
}

// Writes dx, which may be dy.
//   means: the row's sums, divided by its width; g is 0 without centring.
template <class T, bool kPacked>
PP_HOST_DEVICE void row_gradients(const RowStatistics& row, const RowGradient& means, const T* x,
                                  const T* dy, const float* scale, int64_t width, int thread,
                                  int threads, T* dx) {
  constexpr int kCount = kPackSize<T>;
  for_each_pack_of_row<kCount>(width, thread, threads, [&](int64_t first, int64_t elements) {
    float values[kCount];
    float gradients[kCount];
    float scales[kCount];
    load_pack<kPacked, kCount>(x + first, elements, values);
    load_pack<kPacked, kCount>(dy + first, elements, gradients);
    load_pack<kPacked, kCount>(scale + first, elements, scales);
    PP_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const float h = (values[i] - row.mean) * row.inverse;
      values[i] = row.inverse * (gradients[i] * scales[i] - means.g - h * means.product);
    }
    store_pack<kPacked, kCount>(values, elements, dx + first);
  });
}

// Splits the sums for dscale and dshift: unit u sums pack u % packs of chunk u / packs.
struct ColumnSums {
  static constexpr int64_t kChunk = 64;  // rows, as the specification says
  static constexpr int kBatch = 4;       // rows in flight

  int64_t rows = 0;
  int64_t width = 0;
  int64_t chunks = 0;
  int64_t packs = 0;
  Divider by_packs;

  ColumnSums(const LayerNormShape& shape, int pack_size)
      : rows(shape.rows),
        width(shape.width),
        chunks(pieces(rows, kChunk)),
        packs(pieces(width, pack_size)),
        by_packs(packs) {}

  PP_HOST_DEVICE int64_t units() const { return chunks * packs; }
  // Returns the floats of dscale and dshift of all chunks: [chunks, 2, width].
  int64_t partials() const { return chunks * 2 * width; }
};

template <class T, bool kPacked>
PP_HOST_DEVICE void sum_chunk(const ColumnSums& sums, int64_t unit, const T* x, const T* dy,
                              const RowStatistics* statistics, float* partials) {
  constexpr int kCount = kPackSize<T>;
  constexpr int kBatch = ColumnSums::kBatch;
  if (unit >= sums.units()) return;
  const int64_t chunk = sums.by_packs.quotient(static_cast<uint32_t>(unit));
  const int64_t column = (unit - chunk * sums.packs) * kCount;
  const int64_t begin = chunk * ColumnSums::kChunk;
  const int64_t end =
      sums.rows - begin < ColumnSums::kChunk ? sums.rows : begin + ColumnSums::kChunk;
  float dscale[kCount] = {};
  float dshift[kCount] = {};
  for (int64_t row = begin; row < end; row += kBatch) {
    float values[kBatch][kCount];
    float gradients[kBatch][kCount];
    PP_UNROLL
    for (int i = 0; i < kBatch; ++i) {  // all loads before the first addition
      const int64_t count = row + i < end ? sums.width - column : 0;
      const int64_t at = (row + i) * sums.width + column;
      load_pack<kPacked, kCount>(x + at, count, values[i]);
      load_pack<kPacked, kCount>(dy + at, count, gradients[i]);
    }
    PP_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      if (row + i >= end) continue;
      const RowStatistics of_row = statistics[row + i];
      PP_UNROLL
      for (int j = 0; j < kCount; ++j) {
        dscale[j] += gradients[i][j] * ((values[i][j] - of_row.mean) * of_row.inverse);
        dshift[j] += gradients[i][j];
      }
    }
  }
  float* to = partials + chunk * 2 * sums.width + column;
  store_pack<kPacked, kCount>(dscale, sums.width - column, to);
  store_pack<kPacked, kCount>(dshift, sums.width - column, to + sums.width);
}

// Returns the sum of a column's partial sums, which follow each other every 2 * width floats.
PP_HOST_DEVICE inline float sum_partials(const ColumnSums& sums, const float* of_column,
                                         float unscale) {
  float sum = of_column[0];
  for (int64_t chunk = 1; chunk < sums.chunks; ++chunk) {
    sum += of_column[chunk * 2 * sums.width];
  }
  return sum * unscale;
}

}  // namespace pushpull::ops::cuda

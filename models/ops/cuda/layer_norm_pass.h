// The per-thread part of layer normalisation. A group of threads (a warp or a block) processes a
// row, each thread every `threads`-th pack of it. The first read of a row brings it into the first
// cache, where the later ones find it. Gradients of parameters are summed by columns: a thread sums
// a pack of columns over a chunk of rows. Pure.
#pragma once

#include <cstdint>

#include "models/ops/arithmetic.h"
#include "models/ops/cuda/row_pass.h"
#include "models/ops/norms.h"

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

// Computes a thread's part of dscale and dshift: sums its columns over its rows.
template <class T, bool kPacked>
PP_HOST_DEVICE void sum_parameters(const RowPass& pass, const RowPass::Block& block, int thread,
                                   const T* x, const T* dy, const RowStatistics* statistics,
                                   float (&sums)[2][kPackSize<T>]) {
  constexpr int kCount = kPackSize<T>;
  constexpr int kBatch = RowPass::kBatch;
  const int64_t column = block.column + int64_t{thread % kWarp} * kCount;
  const int64_t width = column < pass.columns ? pass.columns - column : 0;
  PP_UNROLL
  for (int j = 0; j < kCount; ++j) sums[0][j] = sums[1][j] = 0.0F;
  for (int64_t first = block.first + thread / kWarp; first < block.last;
       first += RowPass::kWarps * kBatch) {
    float values[kBatch][kCount];
    float gradients[kBatch][kCount];
    RowStatistics of_rows[kBatch];
    PP_UNROLL
    for (int i = 0; i < kBatch; ++i) {  // all loads before the first addition
      const int64_t row = first + i * RowPass::kWarps;
      const int64_t count = row < block.last ? width : 0;
      load_pack<kPacked, kCount>(x + row * pass.columns + column, count, values[i]);
      load_pack<kPacked, kCount>(dy + row * pass.columns + column, count, gradients[i]);
      of_rows[i] = row < block.last ? statistics[row] : RowStatistics{0.0F, 0.0F};
    }
    PP_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      PP_UNROLL
      for (int j = 0; j < kCount; ++j) {
        sums[0][j] += gradients[i][j] * ((values[i][j] - of_rows[i].mean) * of_rows[i].inverse);
        sums[1][j] += gradients[i][j];
      }
    }
  }
}

}  // namespace pushpull::ops::cuda

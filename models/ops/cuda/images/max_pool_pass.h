// The per-thread arithmetic of max pooling's kernels: a thread processes a few adjacent windows in
// a row of the output. Forward stores the position of each window's maximum in a byte, so that
// backward does not need the input.
#pragma once

#include <cstdint>

#include "models/ops/arithmetic.h"
#include "models/ops/max_pool.h"

namespace pushpull::ops::cuda {

// kColumns: input elements that a thread loads per row at once; 1 means two single loads.
struct PoolPass {
  int64_t height = 0;  // of the input
  int64_t width = 0;
  int64_t out_height = 0;
  int64_t out_width = 0;
  int64_t windows = 0;  // per thread
  int64_t units = 0;    // threads
  Divider by_row;       // units per row of the output
  Divider by_height;

  PoolPass(const MaxPoolShape& shape, int columns)
      : height(shape.image.height),
        width(shape.image.width),
        out_height(shape.output().height),
        out_width(shape.output().width),
        windows(columns > 1 ? columns / 2 : 1),
        units(shape.output().size() / windows),
        by_row(out_width / windows),
        by_height(out_height) {}

  struct Unit {
    int64_t in;     // index of the first window's first element
    int64_t out;    // index of the first window
    bool last_row;  // the last row of the output's plane
    bool last_column;
  };
  PP_HOST_DEVICE Unit unit(uint32_t index) const {
    const uint32_t row = by_row.quotient(index);
    const int64_t column = (index - row * by_row.divisor) * windows;
    const uint32_t plane = by_height.quotient(row);
    const int64_t h = row - plane * by_height.divisor;
    return {(plane * height + 2 * h) * width + 2 * column, row * out_width + column,
            h + 1 == out_height, column + windows == out_width};
  }
};

// Returns the number of elements of an input row that one load may read, at most `pack_size`.
inline int pool_columns(int64_t width, int pack_size, bool aligned) {
  if (!aligned) return 1;
  int columns = pack_size;
  while (width % columns != 0) columns /= 2;
  return columns;
}

// The maximum of a window's four elements, visited in reading order: the first among equal ones; a
// NaN wins over numbers.
struct Winner {
  float value = 0.0F;
  uint8_t place = 0;
  PP_HOST_DEVICE void meet(float other, uint8_t at) {
    const bool wins = other > value || (other != other && value == value);
    value = wins ? other : value;
    place = wins ? at : place;
  }
};

// Copies kCount bytes at once. One side is in registers, the other is aligned to kCount.
template <int kCount>
PP_HOST_DEVICE void move_bytes(const uint8_t* from, uint8_t* to) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4);
#if defined(__CUDA_ARCH__)
  std::memcpy(__builtin_assume_aligned(to, kCount), __builtin_assume_aligned(from, kCount), kCount);
#else
  std::memcpy(to, from, kCount);
#endif
}

template <int kColumns, class T>
PP_HOST_DEVICE void pool_forward(const PoolPass& pass, uint32_t index, const T* x, T* y,
                                 uint8_t* winners) {
  constexpr int kWindows = kColumns > 1 ? kColumns / 2 : 1;
  const PoolPass::Unit unit = pass.unit(index);
  float rows[2][2 * kWindows];
  PP_UNROLL
  for (int i = 0; i < 2; ++i) {
    const T* row = x + unit.in + i * pass.width;
    if constexpr (kColumns > 1) {
      load_vector<kColumns>(row, rows[i]);
    } else {
      rows[i][0] = to_float(row[0]);
      rows[i][1] = to_float(row[1]);
    }
  }
  float values[kWindows];
  alignas(kWindows) uint8_t places[kWindows];
  PP_UNROLL
  for (int i = 0; i < kWindows; ++i) {
    Winner winner{rows[0][2 * i], 0};
    winner.meet(rows[0][2 * i + 1], 1);
    winner.meet(rows[1][2 * i], 2);
    winner.meet(rows[1][2 * i + 1], 3);
    values[i] = winner.value;
    places[i] = winner.place;
  }
  move_bytes<kWindows>(places, winners + unit.out);
  store_vector<kWindows>(values, y + unit.out);
}

// Writes every element of dx: the thread of a window writes its elements, and the nearest thread
// writes a dropped last row or column.
template <int kColumns, class T>
PP_HOST_DEVICE void pool_backward(const PoolPass& pass, uint32_t index, const T* dy,
                                  const uint8_t* winners, T* dx) {
  constexpr int kWindows = kColumns > 1 ? kColumns / 2 : 1;
  const PoolPass::Unit unit = pass.unit(index);
  float gradients[kWindows];
  load_vector<kWindows>(dy + unit.out, gradients);
  alignas(kWindows) uint8_t places[kWindows];
  move_bytes<kWindows>(winners + unit.out, places);
  float rows[3][2 * kWindows];  // the third row is zero
  PP_UNROLL
  for (int i = 0; i < kWindows; ++i) {
    PP_UNROLL
    for (int place = 0; place < 4; ++place) {
      rows[place / 2][2 * i + place % 2] = places[i] == place ? gradients[i] : 0.0F;
    }
    rows[2][2 * i] = 0.0F;
    rows[2][2 * i + 1] = 0.0F;
  }
  const bool odd_row = unit.last_row && pass.height % 2 != 0;
  const bool odd_column = unit.last_column && pass.width % 2 != 0;
  PP_UNROLL
  for (int i = 0; i < 3; ++i) {
    if (i == 2 && !odd_row) continue;
    T* row = dx + unit.in + i * pass.width;
    if constexpr (kColumns > 1) {
      store_vector<kColumns>(rows[i], row);
    } else {
      row[0] = from_float<T>(rows[i][0]);
      row[1] = from_float<T>(rows[i][1]);
      if (odd_column) row[2] = from_float<T>(0.0F);
    }
  }
}

}  // namespace pushpull::ops::cuda

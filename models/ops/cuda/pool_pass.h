// The per-thread arithmetic of pooling: forward, backward, and means of whole images. Pure.
//
// The per-thread arithmetic of max pooling's kernels: a thread processes a few adjacent windows in
// a row of the output. Forward stores the position of each window's maximum in a byte, so that
// backward does not need the input.
#pragma once

#include <cstdint>

#include "models/ops/arithmetic.h"
#include "models/ops/cuda/flat_pass.h"
#include "models/ops/ops.h"
#include "models/ops/pool.h"

namespace pushpull::ops::cuda {

// The per-thread arithmetic of global average pooling: a warp sums one plane in f32. Which lane adds
// which elements depends on the shape only; an unaligned image takes more loads. Pure.

// Returns a lane's sum of a plane of `area` elements.
//   kVector: elements that a lane adds in a row: a pack if planes are whole packs, otherwise 1.
//   kPacked: planes are aligned to 16 bytes.
template <int kVector, bool kPacked, class T>
PP_HOST_DEVICE float sum_of_lane(const T* plane, int64_t area, int lane) {
  float sum = 0.0F;
  for (int64_t first = int64_t{lane} * kVector; first < area; first += int64_t{kWarp} * kVector) {
    float values[kVector];
    load_pack<kPacked, kVector>(plane + first, kVector, values);
    PP_UNROLL
    for (int i = 0; i < kVector; ++i) sum += values[i];
  }
  return sum;
}

// dx = dy / area in every element of a plane; flat over all planes.
template <class T, bool kPacked>
PP_HOST_DEVICE void spread_means(const Divider& by_area, const T* dy, int64_t count, int64_t block,
                                 int thread, T* dx) {
  for_each_pack<kPackSize<T>>(count, block, thread, [&](int64_t first, int64_t elements) {
    float values[kPackSize<T>];
    PP_UNROLL
    for (int i = 0; i < kPackSize<T>; ++i) {
      const int64_t at = i < elements ? first + i : first;
      const uint32_t plane = by_area.quotient(static_cast<uint32_t>(at));
      values[i] = to_float(dy[plane]) / static_cast<float>(by_area.divisor);
    }
    store_pack<kPacked, kPackSize<T>>(values, elements, dx + first);
  });
}

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

// The longest side of a window. The places of a square of that side fit in a byte.
constexpr int64_t kMaxWindow = 16;

// The per-thread arithmetic of max pooling with any window: forward has one thread per window,
// backward one per element of the input. Forward stores the place of each window's maximum in a
// byte, so that backward does not need the input. Pure.
struct WindowPass {
  int32_t height = 0;  // of the input
  int32_t width = 0;
  int32_t out_height = 0;
  int32_t out_width = 0;
  int32_t kernel = 0;
  int32_t stride = 0;
  int32_t padding = 0;
  int64_t windows = 0;   // in all planes
  int64_t elements = 0;  // of the input
  Divider by_width, by_height;
  Divider by_out_width, by_out_height;
  Divider by_stride;

  explicit WindowPass(const MaxPoolShape& shape)
      : height(static_cast<int32_t>(shape.image.height)),
        width(static_cast<int32_t>(shape.image.width)),
        out_height(static_cast<int32_t>(shape.output().height)),
        out_width(static_cast<int32_t>(shape.output().width)),
        kernel(static_cast<int32_t>(shape.kernel)),
        stride(static_cast<int32_t>(shape.stride)),
        padding(static_cast<int32_t>(shape.padding)),
        windows(shape.output().size()),
        elements(shape.image.size()),
        by_width(width),
        by_height(height),
        by_out_width(out_width),
        by_out_height(out_height),
        by_stride(stride) {}

  // A place in a plane.
  struct Place {
    int64_t plane;
    int32_t h;
    int32_t w;
  };
  PP_HOST_DEVICE Place window(uint32_t index) const {
    return place(index, by_out_width, by_out_height);
  }
  PP_HOST_DEVICE Place element(uint32_t index) const { return place(index, by_width, by_height); }

  // The windows along one axis that contain an element: from `first` to before `end`.
  struct Range {
    int32_t first;
    int32_t end;
  };
  PP_HOST_DEVICE Range containing(int32_t at, int32_t outputs) const {
    const int32_t padded = at + padding;
    const int32_t before = padded - kernel + 1;  // the smallest start of such a window
    const int32_t first =
        before <= 0
            ? 0
            : static_cast<int32_t>(by_stride.quotient(static_cast<uint32_t>(before + stride - 1)));
    const auto last = static_cast<int32_t>(by_stride.quotient(static_cast<uint32_t>(padded)));
    return {first, last < outputs ? last + 1 : outputs};
  }

 private:
  PP_HOST_DEVICE static Place place(uint32_t index, const Divider& by_row, const Divider& by_rows) {
    const uint32_t row = by_row.quotient(index);
    const uint32_t plane = by_rows.quotient(row);
    return {plane, static_cast<int32_t>(row - plane * by_rows.divisor),
            static_cast<int32_t>(index - row * by_row.divisor)};
  }
};

// Padding never wins: a window has an element of the image, because padding is at most half of it.
template <class T>
PP_HOST_DEVICE void window_forward(const WindowPass& pass, uint32_t index, const T* x, T* y,
                                   uint8_t* winners) {
  const WindowPass::Place at = pass.window(index);
  const T* plane = x + at.plane * pass.height * pass.width;
  const int32_t top = at.h * pass.stride - pass.padding;
  const int32_t left = at.w * pass.stride - pass.padding;
  Winner winner;
  bool is_first = true;
  for (int32_t i = 0; i < pass.kernel; ++i) {
    const int32_t h = top + i;
    if (h < 0 || h >= pass.height) continue;
    for (int32_t j = 0; j < pass.kernel; ++j) {
      const int32_t w = left + j;
      if (w < 0 || w >= pass.width) continue;
      const float value = to_float(plane[int64_t{h} * pass.width + w]);
      const auto place = static_cast<uint8_t>(i * pass.kernel + j);
      if (is_first) {
        winner = {value, place};
        is_first = false;
      } else {
        winner.meet(value, place);
      }
    }
  }
  y[index] = from_float<T>(winner.value);
  winners[index] = winner.place;
}

// Adds the gradients of the windows that an element has won, in the order of the windows.
template <class T>
PP_HOST_DEVICE void window_backward(const WindowPass& pass, uint32_t index, const T* dy,
                                    const uint8_t* winners, T* dx) {
  const WindowPass::Place at = pass.element(index);
  const int64_t first_window = at.plane * pass.out_height * pass.out_width;
  const WindowPass::Range rows = pass.containing(at.h, pass.out_height);
  const WindowPass::Range columns = pass.containing(at.w, pass.out_width);
  float sum = 0.0F;
  for (int32_t row = rows.first; row < rows.end; ++row) {
    const int32_t i = at.h + pass.padding - row * pass.stride;
    for (int32_t column = columns.first; column < columns.end; ++column) {
      const int32_t j = at.w + pass.padding - column * pass.stride;
      const int64_t window = first_window + int64_t{row} * pass.out_width + column;
      if (winners[window] == i * pass.kernel + j) sum += to_float(dy[window]);
    }
  }
  dx[index] = from_float<T>(sum);
}

}  // namespace pushpull::ops::cuda

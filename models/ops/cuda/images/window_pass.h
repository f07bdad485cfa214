// The per-thread arithmetic of max pooling with any window: forward has one thread per window,
// backward one per element of the input. Forward stores the place of each window's maximum in a
// byte, so that backward does not need the input. Pure.
#pragma once

#include <cstdint>

#include "models/ops/arithmetic.h"
#include "models/ops/cuda/images/max_pool_pass.h"
#include "models/ops/max_pool.h"

namespace pushpull::ops::cuda {

// The longest side of a window. The places of a square of that side fit in a byte.
constexpr int64_t kMaxWindow = 16;

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

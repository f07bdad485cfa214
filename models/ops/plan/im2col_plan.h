// Convolution as the matrix products of a linear layer: each output position is a sample with the
// C*k*k elements under the kernel as inputs. Gives the location of each element, for kernels and
// their tests. Source: Chellapilla, Puri & Simard, 2006 ("unrolling convolution").
//
// A *row* is an output position (sample, height, width); a *column* is an element of the kernel
// (channel, i, j), in the order of w [O, C, k, k]. The matrix of rows and columns is called
// "columns". Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/base/host_device.h"
#include "models/ops/convolution.h"

namespace pushpull::ops::cuda {

// Sizes of one convolution, in 32 bits: no tensor has more than 2^31 elements (Spec::check).
// Products of two sizes use 64 bits.
struct Im2col {
  int32_t channels = 0;
  int32_t height = 0;
  int32_t width = 0;
  int32_t kernel = 0;
  int32_t padding = 0;
  int32_t stride = 1;
  int32_t out_height = 0;
  int32_t out_width = 0;

  PP_HOST_DEVICE int64_t columns() const { return int64_t{channels} * kernel * kernel; }
  PP_HOST_DEVICE int64_t positions() const { return int64_t{out_height} * out_width; }

  // Returns the index in x of element (row, column), or -1 for padding.
  PP_HOST_DEVICE int64_t source(int64_t row, int64_t column) const {
    const int64_t sample = row / positions();
    const auto at = static_cast<int32_t>(row % positions());
    const int32_t taps = kernel * kernel;
    const auto tap = static_cast<int32_t>(column % taps);
    const int64_t channel = column / taps;
    const int32_t h = at / out_width * stride + tap / kernel - padding;
    const int32_t w = at % out_width * stride + tap % kernel - padding;
    if (h < 0 || h >= height || w < 0 || w >= width) return -1;
    return ((sample * channels + channel) * height + h) * width + w;
  }

  // Returns the sum, in the order of (i, j), of all elements that were taken from x[index].
  //   columns_of: [rows, columns()].
  //   read: converts an element.
  template <class Read>
  PP_HOST_DEVICE float gather(int64_t index, Read read) const {
    const auto w = static_cast<int32_t>(index % width);
    const auto h = static_cast<int32_t>(index / width % height);
    const int64_t channel = index / (int64_t{width} * height) % channels;
    const int64_t sample = index / (int64_t{width} * height * channels);
    float sum = 0.0F;
    for (int32_t i = 0; i < kernel; ++i) {
      const int32_t y = output(h + padding - i);
      if (y < 0 || y >= out_height) continue;
      for (int32_t j = 0; j < kernel; ++j) {
        const int32_t x = output(w + padding - j);
        if (x < 0 || x >= out_width) continue;
        const int64_t row = sample * positions() + int64_t{y} * out_width + x;
        sum += read(row * columns() + (channel * kernel + i) * kernel + j);
      }
    }
    return sum;
  }

 private:
  // Returns the output position that has its kernel's start at `first` (with the padding), or -1.
  PP_HOST_DEVICE int32_t output(int32_t first) const {
    return first < 0 || first % stride != 0 ? -1 : first / stride;
  }
};

inline Im2col plan_im2col(const ConvolutionShape& shape) {
  const auto int32 = [](int64_t size) { return static_cast<int32_t>(size); };
  const ImageShape out = shape.output();
  return {int32(shape.input.channels), int32(shape.input.height), int32(shape.input.width),
          int32(shape.kernel),         int32(shape.padding),      int32(shape.stride),
          int32(out.height),           int32(out.width)};
}

// Returns the number of samples to unroll at a time, at least one, so that their columns take at
// most `bytes`. Depends on the shape only: splitting the sum over rows elsewhere would change bits.
inline int64_t samples_at_a_time(const Im2col& plan, int64_t samples, int64_t element_bytes,
                                 int64_t bytes) {
  const int64_t each = plan.positions() * plan.columns() * element_bytes;
  return std::clamp(bytes / each, int64_t{1}, samples);
}

}  // namespace pushpull::ops::cuda

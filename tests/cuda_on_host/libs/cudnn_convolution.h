// A convolution as the stand-in for cuDNN reads it from descriptors, and the function that computes
// it. Copied at the call: descriptors may change while it runs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tests/cuda_on_host/libs/numbers.h"

namespace pushpull::cuda_on_host {

// [N, C, H, W] or, for a filter, [O, C, kh, kw], with the stride of each dimension.
struct Tensor {
  Number type = Number::kF32;
  std::array<int64_t, 4> size{};
  std::array<int64_t, 4> stride{};

  int64_t count() const { return size[0] * size[1] * size[2] * size[3]; }
};

struct Window {
  std::array<int64_t, 2> padding{};
  std::array<int64_t, 2> stride{1, 1};
  std::array<int64_t, 2> dilation{1, 1};
};

enum class Direction { kForward, kFilter, kData };

// The direction determines which of the three tensors is written.
struct Convolution {
  Direction direction = Direction::kForward;
  Tensor x, w, y;
  Window window;
  Rounding rounding = Rounding::kNone;  // of f32 operands
  bool from_the_end = false;            // the order of sums
};

struct ConvolutionOperands {
  const void* x = nullptr;
  const void* w = nullptr;
  const void* y = nullptr;
  void* result = nullptr;  // one of the three
  void* workspace = nullptr;
  size_t workspace_bytes = 0;  // bytes that the algorithm uses
  float alpha = 1.0F;
  float beta = 0.0F;
};

void convolve(const Convolution& convolution, const ConvolutionOperands& operands);

}  // namespace pushpull::cuda_on_host

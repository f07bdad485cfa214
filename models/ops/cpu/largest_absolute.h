// The largest absolute value of activations, without widening them. Any thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "common/base/simd.h"
#include "models/ops/number.h"

namespace pushpull::ops::cpu {

// Absolute values order as their bits do, and those of infinity and NaN are the largest. So these
// return infinity or NaN if there is one.
PUSHPULL_SIMD inline float largest_absolute(const float* x, int64_t count) {
  uint32_t bits = 0;
  for (int64_t i = 0; i < count; ++i) {
    bits = std::max(bits, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffU);
  }
  return std::bit_cast<float>(bits);
}
PUSHPULL_SIMD inline float largest_absolute(const Bf16* x, int64_t count) {
  uint16_t bits = 0;
  for (int64_t i = 0; i < count; ++i) {
    bits = std::max(bits, static_cast<uint16_t>(x[i].bits & 0x7fffU));
  }
  return to_float(Bf16{bits});
}

}  // namespace pushpull::ops::cpu

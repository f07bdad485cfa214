// Loops over a row of scores, for softmax: the largest, exponentials and their sum. Every vector
// width and every alignment gives the same bits. Any thread.
#pragma once

#include <cstdint>

#include "common/base/simd.h"

namespace pushpull::ops::cpu {

// Returns exp(x) for x <= 80 with a relative error below 1e-7; below -87 the result is 0. exp(0) is
// exactly 1, and NaN stays NaN. Source: Moshier's Cephes, expf: x = n log(2) + r, a polynomial in r.
PUSHPULL_INLINE float fast_exp(float x) {
  constexpr float kRound = 0x1.8p23F;  // a float this large has no fraction: adding it rounds
  const float shifted = x * 1.44269504F + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  const float mantissa = (p * r * r + r) + 1.0F;
  // the lowest bits of `shifted` are n, which becomes the exponent
  const uint32_t exponent = (__builtin_bit_cast(uint32_t, shifted) + 127U) << 23U;
  return x < -87.0F ? 0.0F : mantissa * __builtin_bit_cast(float, exponent);
}

// Returns the largest of count > 0 numbers; NaNs after the first 16 are skipped.
float largest(const float* x, int64_t count);
// Returns the index of the first element that equals `value`, or 0.
int64_t first_equal(const float* x, int64_t count, float value);

// Returns the sum of fast_exp(x[i] - top). The sum adds in f64: within each block of 256 the upper
// half onto the lower, repeatedly; then the blocks in order.
double exp_sum(const float* x, int64_t count, float top);
// Also writes the exponentials; e may be x.
double exp_row(const float* x, int64_t count, float top, float* e);

}  // namespace pushpull::ops::cpu

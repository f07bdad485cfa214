// exp and tanh as plain arithmetic: they give the same bits with every instruction set and C
// library. They are written in lanes, because the compiler turns the limits of a scalar x into
// branches, and computes a vector once per branch. For functions with PUSHPULL_SIMD.
#pragma once

#include <cstdint>

#include "models/ops/cpu/lanes.h"

namespace pushpull::ops::cpu {

// A cast between Lanes and LaneBits keeps the bits.
using LaneBits [[gnu::vector_size(64)]] = uint32_t;

constexpr uint32_t kSignBit = 0x80000000U;

PUSHPULL_INLINE void absolute(const Lanes& x, Lanes& y) { y = Lanes(LaneBits(x) & ~kSignBit); }

// y becomes e^x to 1e-7 of its value for x from -87 to 87, the value at the nearer end outside, and
// NaN for NaN. With n = round(x / ln 2) it is 2^n e^r. Coefficients: Cephes expf (Moshier).
PUSHPULL_INLINE void exponential(const Lanes& x, Lanes& y) {
  constexpr float kRound = 0x1.8p23F;  // a sum with it is rounded to a whole number
  const Lanes lowest = Lanes{} - 87.0F;
  const Lanes highest = Lanes{} + 87.0F;
  const Lanes above = x < lowest ? lowest : x;
  const Lanes in = above > highest ? highest : above;
  const Lanes shifted = in * 1.44269504F + kRound;
  const Lanes n = shifted - kRound;
  const Lanes r = (in - n * 0.693359375F) - n * -2.12194440e-4F;  // ln 2 in two parts
  Lanes p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  // the low bits of `shifted` are n; they are added to the exponent of 1
  const LaneBits power = (LaneBits(shifted) << 23) + 0x3F800000U;
  y = p * Lanes(power);
}

// y becomes tanh x to 2e-7 of its value. Coefficients below 0.625: Cephes tanhf (Moshier).
PUSHPULL_INLINE void hyperbolic_tangent(const Lanes& x, Lanes& y) {
  const Lanes square = x * x;
  Lanes p = square * -5.70498872745e-3F + 2.06390887954e-2F;
  p = p * square - 5.37397155531e-2F;
  p = p * square + 1.33314422036e-1F;
  p = p * square - 3.33332819422e-1F;
  const Lanes near = p * square * x + x;
  Lanes size;
  absolute(x, size);
  Lanes power;
  exponential(size + size, power);
  const Lanes far = 1.0F - 2.0F / (power + 1.0F);
  const LaneBits sign = LaneBits(x) & kSignBit;
  const Lanes signed_far = Lanes(LaneBits(far) | sign);
  y = size < 0.625F ? near : signed_far;
}

}  // namespace pushpull::ops::cpu

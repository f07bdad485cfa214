// Functions of one number, one source for the host's loops and a device's kernels, so both have the
// same bits: exp, tanh, and the activation functions of models/ops/pointwise.h. Pure.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/base/host_device.h"
#include "models/ops/arithmetic.h"
#include "models/ops/number.h"

namespace pushpull::ops {

// exp and tanh as plain arithmetic: loops over them vectorise, and give the same bits with every
// instruction set and C library, and on a device. On the host for loops in functions with
// PUSHPULL_SIMD, in a file that is compiled with -fno-trapping-math and -fno-thread-jumps
// (models/CMakeLists.txt).

// Returns e^x to 1e-7 of its value for x from -87 to 87, the value at the nearer end outside, and
// NaN for NaN. With n = round(x / ln 2) it is 2^n e^r. Coefficients: Cephes expf (Moshier).
PP_HOST_DEVICE_INLINE float exponential(float x) {
  constexpr float kToWhole = 0x1.8p23F;  // a sum with it is rounded to a whole number
  const float above = x < -87.0F ? -87.0F : x;
  const float in = above > 87.0F ? 87.0F : above;
  const float shifted = in * 1.44269504F + kToWhole;
  const float n = shifted - kToWhole;
  const float r = (in - n * 0.693359375F) - n * -2.12194440e-4F;  // ln 2 in two parts
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  // the low bits of `shifted` are n; they are added to the exponent of 1
  const uint32_t power = (bits_of(shifted) << 23) + 0x3F800000U;
  return p * float_of(power);
}

// Returns tanh x to 2e-7 of its value. Coefficients below 0.625: Cephes tanhf (Moshier).
PP_HOST_DEVICE_INLINE float hyperbolic_tangent(float x) {
  const float size = std::fabs(x);
  const float square = x * x;
  float p = -5.70498872745e-3F;
  p = p * square + 2.06390887954e-2F;
  p = p * square - 5.37397155531e-2F;
  p = p * square + 1.33314422036e-1F;
  p = p * square - 3.33332819422e-1F;
  const float near = p * square * x + x;
  const float far = std::copysign(1.0F - 2.0F / (exponential(2.0F * size) + 1.0F), x);
  return size < 0.625F ? near : far;
}

struct ReluFunction {
  static constexpr bool kFromOutput = true;
  static PP_HOST_DEVICE_INLINE float value(float x) { return relu(x); }
  static PP_HOST_DEVICE_INLINE float gradient(float y, float dy) { return relu_gradient(y, dy); }
};

struct TanhFunction {
  static constexpr bool kFromOutput = true;
  static PP_HOST_DEVICE_INLINE float value(float x) { return hyperbolic_tangent(x); }
  static PP_HOST_DEVICE_INLINE float gradient(float y, float dy) { return dy * (1.0F - y * y); }
};

// Returns the standard normal distribution's cumulative probability of x; `density` becomes
// e^(-x^2 / 2). Source: Abramowitz & Stegun, 7.1.26, error 1.5e-7.
PP_HOST_DEVICE_INLINE float normal_probability(float x, float& density) {
  const float t = 1.0F / (1.0F + 0.3275911F * 0.70710678F * std::fabs(x));
  float p = 1.061405429F;
  p = p * t - 1.453152027F;
  p = p * t + 1.421413741F;
  p = p * t - 0.284496736F;
  p = p * t + 0.254829592F;
  density = exponential(-0.5F * x * x);
  const float outer = 0.5F * p * t * density;
  const float inner = 1.0F - outer;
  return x < 0.0F ? outer : inner;
}

struct GeluErfFunction {
  static constexpr bool kFromOutput = false;
  static PP_HOST_DEVICE_INLINE float value(float x) {
    float density;
    return x * normal_probability(x, density);
  }
  static PP_HOST_DEVICE_INLINE float gradient(float x, float dy) {
    float density;
    const float probability = normal_probability(x, density);
    return dy * (probability + x * density * 0.39894228F);
  }
};

// 1/2 (1 + tanh u) = 1 / (1 + e^(-2u)), with u = sqrt(2/pi) (x + 0.044715 x^3).
struct GeluTanhFunction {
  static constexpr bool kFromOutput = false;
  static constexpr float kLinear = -1.59576912F;  // -2 sqrt(2/pi)
  static constexpr float kCubic = -1.59576912F * 0.044715F;

  // Returns e^(-2u).
  static PP_HOST_DEVICE_INLINE float power(float x) {
    return exponential(x * (kLinear + kCubic * (x * x)));
  }
  static PP_HOST_DEVICE_INLINE float value(float x) { return x / (1.0F + power(x)); }
  static PP_HOST_DEVICE_INLINE float gradient(float x, float dy) {
    const float e = power(x);
    const float share = 1.0F / (1.0F + e);
    const float slope = kLinear + 3.0F * kCubic * (x * x);  // of -2u
    // 1 - share would be inexact where share is about 1
    return dy * (share - x * slope * (share * (e * share)));
  }
};

}  // namespace pushpull::ops

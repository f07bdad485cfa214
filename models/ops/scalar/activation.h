// The activation functions of models/ops/activate.h for one element: one source for the host's
// loops and a device's kernels, so both have the same bits. Pure.
//
// `gradient` takes the function's output if kFromOutput, and its input otherwise.
#pragma once

#include <cmath>

#include "common/base/host_device.h"
#include "models/ops/arithmetic.h"
#include "models/ops/scalar/exponential.h"

namespace pushpull::ops {

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

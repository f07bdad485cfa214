// The update rules of common/update/optimizer.h and common/update/delay_compensation.h for one
// element: one source for the host's loops and a device's kernels, so both have the same bits.
// Scalars are computed on the host, in double, and rounded once. Pure.
//
// The operations and their order are those of PyTorch's torch.optim, in float. Multiplying by a
// clip of 1 is exact, so it needs no branch.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/base/host_device.h"

namespace pushpull {

enum class Decay : int32_t { kNone, kL2, kDecoupled };

struct GradientScale {
  float divisor;
  float clip;
  float weight_decay;  // kL2 only
};

template <Decay kDecay>
PP_HOST_DEVICE_INLINE float gradient(float sum, float w, const GradientScale& scale) {
  float g = sum / scale.divisor * scale.clip;
  if constexpr (kDecay == Decay::kL2) g += scale.weight_decay * w;
  return g;
}

template <Decay kDecay>
PP_HOST_DEVICE_INLINE float sgd_element(const GradientScale& scale, float lr, float sum, float w) {
  return w - lr * gradient<kDecay>(sum, w, scale);
}

// buffer: the element's momentum buffer, updated.
template <Decay kDecay, bool kNesterov>
PP_HOST_DEVICE_INLINE float momentum_element(const GradientScale& scale, float lr, float mu,
                                             float sum, float w, float& buffer) {
  const float g = gradient<kDecay>(sum, w, scale);
  const float b = mu * buffer + g;
  buffer = b;
  return w - lr * (kNesterov ? g + mu * b : b);
}

struct AdamScalars {
  float beta1;
  float beta2;
  float one_minus_beta1;
  float one_minus_beta2;
  float step;             // lr / (1 - beta1^t)
  float root_correction;  // sqrt(1 - beta2^t)
  float epsilon;
  float keep;  // 1 - lr * weight_decay; kDecoupled only
};

template <Decay kDecay>
PP_HOST_DEVICE_INLINE float adam_element(const GradientScale& scale, const AdamScalars& a,
                                         float sum, float w_in, float& exp_avg, float& exp_avg_sq) {
  const float g = gradient<kDecay>(sum, w_in, scale);
  const float w = kDecay == Decay::kDecoupled ? w_in * a.keep : w_in;
  const float m = a.beta1 * exp_avg + a.one_minus_beta1 * g;
  const float v = a.beta2 * exp_avg_sq + a.one_minus_beta2 * g * g;
  exp_avg = m;
  exp_avg_sq = v;
  return w - a.step * m / (std::sqrt(v) / a.root_correction + a.epsilon);
}

struct AverageScalars {
  float keep;
  float take;
  float divisor;
};

PP_HOST_DEVICE_INLINE float average_element(const AverageScalars& a, float sum, float r) {
  return a.keep * r + a.take * (sum / a.divisor);
}

struct CompensationScalars {
  float divisor;
  float clip;
  float lambda;
};

PP_HOST_DEVICE_INLINE float compensated_element(const CompensationScalars& c, float sum, float now,
                                                float read) {
  const float g = sum / c.divisor * c.clip;
  return g + c.lambda * g * g * (now - read);
}

// The update of one tensor's elements, as plain data for a device.
struct ElementRule {
  enum Kind : int32_t { kSgd, kMomentum, kNesterov, kAdam, kAverage };
  Kind kind;
  Decay decay;
  GradientScale scale;
  float lr;
  float mu;
  AdamScalars adam;
  AverageScalars average;
  // If true, the rule is applied to the gradient that `compensation` makes from the sum.
  bool compensates;
  CompensationScalars compensation;
};

// Returns the number of state vectors that a rule uses.
PP_HOST_DEVICE_INLINE constexpr int states_of(ElementRule::Kind kind) {
  if (kind == ElementRule::kAdam) return 2;
  return kind == ElementRule::kMomentum || kind == ElementRule::kNesterov ? 1 : 0;
}

// Returns the new weight of one element.
//   state: the element's state, states_of(kKind) values, updated.
template <ElementRule::Kind kKind, Decay kDecay>
PP_HOST_DEVICE_INLINE float moved_element(const ElementRule& rule, float sum, float w,
                                          float (&state)[2]) {
  if constexpr (kKind == ElementRule::kSgd) {
    return sgd_element<kDecay>(rule.scale, rule.lr, sum, w);
  } else if constexpr (kKind == ElementRule::kMomentum || kKind == ElementRule::kNesterov) {
    return momentum_element<kDecay, kKind == ElementRule::kNesterov>(rule.scale, rule.lr, rule.mu,
                                                                     sum, w, state[0]);
  } else if constexpr (kKind == ElementRule::kAdam) {
    return adam_element<kDecay>(rule.scale, rule.adam, sum, w, state[0], state[1]);
  } else {
    return average_element(rule.average, sum, w);
  }
}

}  // namespace pushpull

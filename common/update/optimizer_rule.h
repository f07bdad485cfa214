// The update rules of common/update/optimizer.h and common/update/delay_compensation.h for one
// element: one source for the host's loops and a device's kernels, so both have the same bits.
// Scalars are computed on the host, in double, and rounded once. Pure.
//
// The operations and their order are those of PyTorch's torch.optim, in float; lion's are those of
// Chen et al., arXiv 2302.06675, and lamb's those of You et al., arXiv 1904.00962. Multiplying by a
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
  float weight_decay;  // kL2, and lamb
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
  float step;             // lr / (1 - beta1^t); lamb: 1 / (1 - beta1^t)
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

// AdamScalars of these three: beta1, beta2, one_minus_beta1, one_minus_beta2, epsilon, keep.

// square_avg: running mean of the squares of the element's gradient, updated.
template <Decay kDecay>
PP_HOST_DEVICE_INLINE float rmsprop_element(const GradientScale& scale, const AdamScalars& a,
                                            float lr, float sum, float w, float& square_avg) {
  const float g = gradient<kDecay>(sum, w, scale);
  const float v = a.beta2 * square_avg + a.one_minus_beta2 * g * g;
  square_avg = v;
  return w - lr * g / (std::sqrt(v) + a.epsilon);
}

// squares: sum of the squares of the element's gradient, updated.
template <Decay kDecay>
PP_HOST_DEVICE_INLINE float adagrad_element(const GradientScale& scale, const AdamScalars& a,
                                            float lr, float sum, float w, float& squares) {
  const float g = gradient<kDecay>(sum, w, scale);
  const float s = squares + g * g;
  squares = s;
  return w - lr * g / (std::sqrt(s) + a.epsilon);
}

template <Decay kDecay>
PP_HOST_DEVICE_INLINE float lion_element(const GradientScale& scale, const AdamScalars& a, float lr,
                                         float sum, float w_in, float& exp_avg) {
  const float g = gradient<kDecay>(sum, w_in, scale);
  const float w = kDecay == Decay::kDecoupled ? w_in * a.keep : w_in;
  const float m = exp_avg;
  const float u = a.beta1 * m + a.one_minus_beta1 * g;
  exp_avg = a.beta2 * m + a.one_minus_beta2 * g;
  const float sign = u > 0.0F ? 1.0F : (u < 0.0F ? -1.0F : 0.0F);
  return w - lr * sign;
}

// Returns lamb's direction u, without the learning rate and the trust ratio: w - lr ratio u is the
// new weight.
template <Decay kDecay>
PP_HOST_DEVICE_INLINE float lamb_direction(const GradientScale& scale, const AdamScalars& a,
                                           float sum, float w, float& exp_avg, float& exp_avg_sq) {
  const float g = gradient<kDecay>(sum, w, scale);
  const float m = a.beta1 * exp_avg + a.one_minus_beta1 * g;
  const float v = a.beta2 * exp_avg_sq + a.one_minus_beta2 * g * g;
  exp_avg = m;
  exp_avg_sq = v;
  const float u = a.step * m / (std::sqrt(v) / a.root_correction + a.epsilon);
  return kDecay == Decay::kDecoupled ? u + scale.weight_decay * w : u;
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
  enum Kind : int32_t {
    kSgd,
    kMomentum,
    kNesterov,
    kAdam,
    kAverage,
    kRmsprop,
    kAdagrad,
    kLion,
    kLamb
  };
  Kind kind;
  Decay decay;
  GradientScale scale;
  float lr;  // kLamb: times the tensor's trust ratio
  float mu;
  AdamScalars adam;  // also of kRmsprop, kAdagrad, kLion, kLamb
  AverageScalars average;
  // If true, the rule is applied to the gradient that `compensation` makes from the sum.
  bool compensates;
  CompensationScalars compensation;
};

// Returns the number of state vectors that a rule uses.
PP_HOST_DEVICE_INLINE constexpr int states_of(ElementRule::Kind kind) {
  if (kind == ElementRule::kAdam || kind == ElementRule::kLamb) return 2;
  return kind == ElementRule::kSgd || kind == ElementRule::kAverage ? 0 : 1;
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
  } else if constexpr (kKind == ElementRule::kRmsprop) {
    return rmsprop_element<kDecay>(rule.scale, rule.adam, rule.lr, sum, w, state[0]);
  } else if constexpr (kKind == ElementRule::kAdagrad) {
    return adagrad_element<kDecay>(rule.scale, rule.adam, rule.lr, sum, w, state[0]);
  } else if constexpr (kKind == ElementRule::kLion) {
    return lion_element<kDecay>(rule.scale, rule.adam, rule.lr, sum, w, state[0]);
  } else if constexpr (kKind == ElementRule::kLamb) {
    return w - rule.lr * lamb_direction<kDecay>(rule.scale, rule.adam, sum, w, state[0], state[1]);
  } else {
    return average_element(rule.average, sum, w);
  }
}

}  // namespace pushpull

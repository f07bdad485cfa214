// Activation functions as own loops, which give the same bits for any number of threads and with
// every instruction set.
#include "models/ops/activate.h"

#include <cmath>

#include "common/base/simd.h"
#include "models/ops/arithmetic.h"
#include "models/ops/cpu/exponential.h"
#include "models/ops/cpu/operations.h"
#include "models/ops/cpu/split.h"

namespace pushpull::ops::cpu {

namespace {

struct ReluFunction {
  PUSHPULL_INLINE static float value(float x) { return relu(x); }
  PUSHPULL_INLINE static float gradient(float y, float dy) { return relu_gradient(y, dy); }
};

struct TanhFunction {
  PUSHPULL_INLINE static float value(float x) { return hyperbolic_tangent(x); }
  PUSHPULL_INLINE static float gradient(float y, float dy) { return dy * (1.0F - y * y); }
};

// Returns the standard normal distribution's cumulative probability of x; `density` becomes
// e^(-x^2 / 2). Source: Abramowitz & Stegun, 7.1.26, error 1.5e-7.
PUSHPULL_INLINE float normal_probability(float x, float& density) {
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
  PUSHPULL_INLINE static float value(float x) {
    float density;
    return x * normal_probability(x, density);
  }
  PUSHPULL_INLINE static float gradient(float x, float dy) {
    float density;
    const float probability = normal_probability(x, density);
    return dy * (probability + x * density * 0.39894228F);
  }
};

// 1/2 (1 + tanh u) = 1 / (1 + e^(-2u)), with u = sqrt(2/pi) (x + 0.044715 x^3).
struct GeluTanhFunction {
  static constexpr float kLinear = -1.59576912F;  // -2 sqrt(2/pi)
  static constexpr float kCubic = -1.59576912F * 0.044715F;

  // Returns e^(-2u).
  PUSHPULL_INLINE static float power(float x) {
    return exponential(x * (kLinear + kCubic * (x * x)));
  }
  PUSHPULL_INLINE static float value(float x) { return x / (1.0F + power(x)); }
  PUSHPULL_INLINE static float gradient(float x, float dy) {
    const float e = power(x);
    const float share = 1.0F / (1.0F + e);
    const float slope = kLinear + 3.0F * kCubic * (x * x);  // of -2u
    // 1 - share would be inexact where share is about 1
    return dy * (share - x * slope * (share * (e * share)));
  }
};

template <class F>
PUSHPULL_INLINE void compute_values(const float* x, int64_t n, float* y) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) y[i] = F::value(x[i]);
}
template <class F>
PUSHPULL_INLINE void compute_gradients(const float* x, const float* dy, int64_t n, float* dx) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) dx[i] = F::gradient(x[i], dy[i]);
}

// PUSHPULL_SIMD cannot stand before a template.
PUSHPULL_SIMD void relu_values(const float* x, int64_t n, float* y) {
  compute_values<ReluFunction>(x, n, y);
}
PUSHPULL_SIMD void relu_gradients(const float* x, const float* dy, int64_t n, float* dx) {
  compute_gradients<ReluFunction>(x, dy, n, dx);
}
PUSHPULL_SIMD void tanh_values(const float* x, int64_t n, float* y) {
  compute_values<TanhFunction>(x, n, y);
}
PUSHPULL_SIMD void tanh_gradients(const float* x, const float* dy, int64_t n, float* dx) {
  compute_gradients<TanhFunction>(x, dy, n, dx);
}
PUSHPULL_SIMD void gelu_erf_values(const float* x, int64_t n, float* y) {
  compute_values<GeluErfFunction>(x, n, y);
}
PUSHPULL_SIMD void gelu_erf_gradients(const float* x, const float* dy, int64_t n, float* dx) {
  compute_gradients<GeluErfFunction>(x, dy, n, dx);
}
PUSHPULL_SIMD void gelu_tanh_values(const float* x, int64_t n, float* y) {
  compute_values<GeluTanhFunction>(x, n, y);
}
PUSHPULL_SIMD void gelu_tanh_gradients(const float* x, const float* dy, int64_t n, float* dx) {
  compute_gradients<GeluTanhFunction>(x, dy, n, dx);
}

struct ActivationLoops {
  void (*values)(const float* x, int64_t n, float* y);
  // x: the output if `from_output`.
  void (*gradients)(const float* x, const float* dy, int64_t n, float* dx);
  bool from_output;
};

ActivationLoops loops_of(Function function) {
  switch (function) {
    case Function::kRelu:
      return {relu_values, relu_gradients, true};
    case Function::kTanh:
      return {tanh_values, tanh_gradients, true};
    case Function::kGeluErf:
      return {gelu_erf_values, gelu_erf_gradients, false};
    case Function::kGeluTanh:
      break;
  }
  return {gelu_tanh_values, gelu_tanh_gradients, false};
}

class CpuActivate final : public Operation {
 public:
  explicit CpuActivate(const ActivateSpec& spec)
      : loops_(loops_of(spec.function())), count_(stored_floats(spec.output())) {}

  Needs needs() const override {
    return {.inputs = loops_.from_output ? 0U : 1U,
            .output = loops_.from_output,
            .in_place = loops_.from_output,
            .gradient_in_place = true};
  }

  void forward(const Run& run) override {
    in_ranges(count_, kWorth, [&](int64_t begin, int64_t end) {
      loops_.values(run.x[0].floats() + begin, end - begin, run.y.floats() + begin);
    });
  }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    if (run.dx[0].data == nullptr) return;
    const float* x = loops_.from_output ? run.y.floats() : run.x[0].floats();
    in_ranges(count_, kWorth, [&](int64_t begin, int64_t end) {
      loops_.gradients(x + begin, run.dy.floats() + begin, end - begin, run.dx[0].floats() + begin);
    });
  }

 private:
  static constexpr int64_t kWorth = kGrain / 4;

  ActivationLoops loops_;
  int64_t count_;
};

}  // namespace

std::unique_ptr<Operation> make_activate(Shared& /*shared*/, const Spec& spec) {
  return std::make_unique<CpuActivate>(spec_as<ActivateSpec>(spec));
}

}  // namespace pushpull::ops::cpu

// Activation functions as own loops, which give the same bits for any number of threads and with
// every instruction set.
#include "models/ops/activate.h"

#include "common/base/simd.h"
#include "models/ops/cpu/operations.h"
#include "models/ops/cpu/split.h"
#include "models/ops/scalar/activation.h"

namespace pushpull::ops::cpu {

namespace {

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

// Activation functions as own loops, which give the same bits for any number of threads and with
// every instruction set.
#include "common/base/simd.h"
#include "models/ops/cpu/operations.h"
#include "models/ops/cpu/split.h"
#include "models/ops/pointwise.h"
#include "models/ops/scalar.h"

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

template <class T>
class CpuActivate final : public Operation {
 public:
  explicit CpuActivate(const ActivateSpec& spec)
      : loops_(loops_of(spec.function())), count_(stored_elements(spec.output())) {}

  Needs needs() const override {
    return {.inputs = loops_.from_output ? 0U : 1U,
            .output = loops_.from_output,
            .in_place = loops_.from_output,
            .gradient_in_place = true};
  }

  void forward(const Run& run) override {
    in_pieces<T>(count_, kWorth, [&](int64_t first, int64_t n) {
      const Reads<T> x(elements<T>(run.x[0]) + first, n);
      const Writes<T> y(elements<T>(run.y) + first, n);
      loops_.values(x.data(), n, y.data());
    });
  }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    if (run.dx[0].data == nullptr) return;
    const T* from = loops_.from_output ? elements<T>(run.y) : elements<T>(run.x[0]);
    in_pieces<T>(count_, kWorth, [&](int64_t first, int64_t n) {
      const Reads<T> x(from + first, n);
      const Reads<T> dy(elements<T>(run.dy) + first, n);
      const Writes<T> dx(elements<T>(run.dx[0]) + first, n);
      loops_.gradients(x.data(), dy.data(), n, dx.data());
    });
  }

 private:
  static constexpr int64_t kWorth = kGrain / 4;

  ActivationLoops loops_;
  int64_t count_;
};

}  // namespace

std::unique_ptr<Operation> make_activate(Shared& shared, const Spec& spec) {
  return by_element(shared.activation, [&]<class T>(T) -> std::unique_ptr<Operation> {
    return std::make_unique<CpuActivate<T>>(spec_as<ActivateSpec>(spec));
  });
}

}  // namespace pushpull::ops::cpu

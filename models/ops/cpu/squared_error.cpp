// The squared error of each target and its gradient, as plain loops.
#include "models/ops/squared_error.h"

#include "common/base/error.h"
#include "common/base/simd.h"
#include "models/ops/cpu/operations.h"

namespace pushpull::ops::cpu {

namespace {

PUSHPULL_SIMD void squares(const float* x, const float* target, int64_t count, float* y) {
  PUSHPULL_ELEMENTWISE
  for (int64_t n = 0; n < count; ++n) y[n] = (x[n] - target[n]) * (x[n] - target[n]);
}

PUSHPULL_SIMD void square_gradients(const float* x, const float* target, int64_t count, float scale,
                                    float* dx) {
  PUSHPULL_ELEMENTWISE
  for (int64_t n = 0; n < count; ++n) dx[n] = (x[n] - target[n]) * (2.0F * scale);
}

// One thread: there is one output per target, and the loops are bound by memory.
template <class T>
class CpuSquaredError final : public Operation {
 public:
  explicit CpuSquaredError(int64_t targets) : targets_(targets) {}

  Needs needs() const override { return {.inputs = 0b11, .gradient_in_input = true}; }
  void forward(const Run& run) override {
    PP_ASSERT(run.valid >= 0 && run.valid <= targets_);
    for (int64_t i = 0; i < run.valid; i += kPiece) {
      const int64_t n = std::min(kPiece, run.valid - i);
      const Reads<T> x(elements<T>(run.x[0]) + i, n);
      squares(x.data(), run.x[1].floats() + i, n, run.y.floats() + i);
    }
  }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    for (int64_t i = 0; i < targets_; i += kPiece) {
      const int64_t n = std::min(kPiece, targets_ - i);
      const Reads<T> x(elements<T>(run.x[0]) + i, n);
      const Writes<T> dx(elements<T>(run.dx[0]) + i, n);
      square_gradients(x.data(), run.x[1].floats() + i, n, *run.scale, dx.data());
    }
  }

 private:
  int64_t targets_;
};

}  // namespace

std::unique_ptr<Operation> make_squared_error(Shared& shared, const Spec& spec) {
  return by_element(shared.activation, [&]<class T>(T) -> std::unique_ptr<Operation> {
    return std::make_unique<CpuSquaredError<T>>(spec_as<SquaredErrorSpec>(spec).targets());
  });
}

}  // namespace pushpull::ops::cpu

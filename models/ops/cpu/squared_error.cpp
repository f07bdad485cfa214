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
class CpuSquaredError final : public Operation {
 public:
  explicit CpuSquaredError(int64_t targets) : targets_(targets) {}

  Needs needs() const override { return {.inputs = 0b11, .gradient_in_input = true}; }
  void forward(const Run& run) override {
    PP_ASSERT(run.valid >= 0 && run.valid <= targets_);
    squares(run.x[0].floats(), run.x[1].floats(), run.valid, run.y.floats());
  }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    square_gradients(run.x[0].floats(), run.x[1].floats(), targets_, *run.scale,
                     run.dx[0].floats());
  }

 private:
  int64_t targets_;
};

}  // namespace

std::unique_ptr<Operation> make_squared_error(Shared& /*shared*/, const Spec& spec) {
  return std::make_unique<CpuSquaredError>(spec_as<SquaredErrorSpec>(spec).targets());
}

}  // namespace pushpull::ops::cpu

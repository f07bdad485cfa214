// Addition as a plain loop: it waits for memory.
#include "models/ops/add.h"

#include <algorithm>

#include "common/base/simd.h"
#include "models/ops/cpu/operations.h"
#include "models/ops/cpu/split.h"

namespace pushpull::ops::cpu {

namespace {

PUSHPULL_SIMD void add_values(const float* a, const float* b, int64_t n, float* y) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

class CpuAdd final : public Operation {
 public:
  explicit CpuAdd(int64_t count) : count_(count) {}

  Needs needs() const override { return {.in_place = true, .gradient_in_place = true}; }

  void forward(const Run& run) override {
    in_ranges(count_, kGrain, [&run](int64_t begin, int64_t end) {
      add_values(run.x[0].floats() + begin, run.x[1].floats() + begin, end - begin,
                 run.y.floats() + begin);
    });
  }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    for (size_t i : {0, 1}) {
      const float* dy = run.dy.floats();
      float* dx = run.dx[i].floats();
      if (dx == nullptr || dx == dy) continue;
      in_ranges(count_, kGrain, [dy, dx](int64_t begin, int64_t end) {
        std::copy_n(dy + begin, end - begin, dx + begin);
      });
    }
  }

 private:
  int64_t count_;
};

}  // namespace

std::unique_ptr<Operation> make_add(Shared& /*shared*/, const Spec& spec) {
  return std::make_unique<CpuAdd>(stored_floats(spec.output()));
}

}  // namespace pushpull::ops::cpu

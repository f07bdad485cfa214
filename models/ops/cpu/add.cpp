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

template <class T>
class CpuAdd final : public Operation {
 public:
  explicit CpuAdd(int64_t count) : count_(count) {}

  Needs needs() const override { return {.in_place = true, .gradient_in_place = true}; }

  void forward(const Run& run) override {
    in_pieces<T>(count_, kGrain, [&run](int64_t first, int64_t n) {
      const Reads<T> a(elements<T>(run.x[0]) + first, n);
      const Reads<T> b(elements<T>(run.x[1]) + first, n);
      const Writes<T> y(elements<T>(run.y) + first, n);
      add_values(a.data(), b.data(), n, y.data());
    });
  }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    for (size_t i : {0, 1}) {
      const T* dy = elements<T>(run.dy);
      T* dx = elements<T>(run.dx[i]);
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

std::unique_ptr<Operation> make_add(Shared& shared, const Spec& spec) {
  const ValueType type = spec.output();
  return by_element(shared, type, [&]<class T>(T) -> std::unique_ptr<Operation> {
    return std::make_unique<CpuAdd<T>>(stored_elements(type));
  });
}

}  // namespace pushpull::ops::cpu

// A slice of a dimension as copies of rows.
#include "models/ops/select.h"

#include <algorithm>

#include "models/ops/cpu/operations.h"
#include "models/ops/cpu/split.h"

namespace pushpull::ops::cpu {

namespace {

template <class T>
class CpuSelect final : public Operation {
 public:
  explicit CpuSelect(const SelectShape& shape) : shape_(shape) {}

  Needs needs() const override { return {}; }

  void forward(const Run& run) override {
    const auto [outer, size, inner, index] = shape_;
    in_ranges(outer, rows_of_grain(inner), [&](int64_t begin, int64_t end) {
      for (int64_t a = begin; a < end; ++a) {
        const T* from = elements<T>(run.x[0]) + (a * size + index) * inner;
        std::copy_n(from, inner, elements<T>(run.y) + a * inner);
      }
    });
  }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    if (run.dx[0].data == nullptr) return;
    const auto [outer, size, inner, index] = shape_;
    in_ranges(outer, rows_of_grain(size * inner), [&](int64_t begin, int64_t end) {
      T* dx = elements<T>(run.dx[0]);
      std::fill(dx + begin * size * inner, dx + end * size * inner, T{});
      for (int64_t a = begin; a < end; ++a) {
        std::copy_n(elements<T>(run.dy) + a * inner, inner, dx + (a * size + index) * inner);
      }
    });
  }

 private:
  SelectShape shape_;
};

}  // namespace

std::unique_ptr<Operation> make_select(Shared& shared, const Spec& spec) {
  return by_element(shared.activation, [&]<class T>(T) -> std::unique_ptr<Operation> {
    return std::make_unique<CpuSelect<T>>(spec_as<SelectSpec>(spec).shape());
  });
}

}  // namespace pushpull::ops::cpu

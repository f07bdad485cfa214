// Adding learned positions as a plain loop: it waits for memory.
#include "models/ops/add_positions.h"

#include <algorithm>

#include "common/base/simd.h"
#include "models/ops/cpu/operations.h"
#include "models/ops/cpu/split.h"

namespace pushpull::ops::cpu {

namespace {

PUSHPULL_SIMD void add_rows(const float* x, const float* w, int64_t n, float* y) {
  PUSHPULL_ELEMENTWISE
  for (int64_t j = 0; j < n; ++j) y[j] = x[j] + w[j];
}

template <class T>
class CpuAddPositions final : public Operation {
 public:
  explicit CpuAddPositions(const AddPositionsShape& shape) : shape_(shape) {}

  Needs needs() const override { return {.in_place = true, .gradient_in_place = true}; }

  void forward(const Run& run) override {
    const auto [samples, positions, width, limit] = shape_;
    const int64_t sample = positions * width;
    in_ranges(samples * positions, rows_of_grain(width), [&](int64_t begin, int64_t end) {
      // the rows of w follow each other as those of a sample
      for (int64_t i = begin * width; i < end * width;) {
        const int64_t place = i % sample;
        const int64_t count = std::min({end * width - i, sample - place, kMost});
        const Reads<T> x(elements<T>(run.x[0]) + i, count);
        const Writes<T> y(elements<T>(run.y) + i, count);
        add_rows(x.data(), run.w[0] + place, count, y.data());
        i += count;
      }
    });
  }

  void backward_weights(const Run& run) override {
    const int64_t sample = shape_.positions * shape_.width;
    const T* dy = elements<T>(run.dy);
    float* dw = run.dw[0];
    in_ranges(sample, 1 + kGrain / shape_.samples,
              [&](int64_t begin, int64_t end) { sum(dy, sample, begin, end, dw); });
    std::fill_n(dw + sample, shape_.limit * shape_.width - sample, 0.0F);
  }

  void backward_data(const Run& run) override {
    const T* dy = elements<T>(run.dy);
    T* dx = elements<T>(run.dx[0]);
    if (dx == nullptr || dx == dy) return;
    in_ranges(
        shape_.samples * shape_.positions * shape_.width, kGrain,
        [&](int64_t begin, int64_t end) { std::copy_n(dy + begin, end - begin, dx + begin); });
  }

 private:
  // Elements that are added at once.
  static constexpr int64_t kMost = std::is_same_v<T, float> ? INT64_MAX : kPiece;

  // Sums pieces that stay in the first cache, sample after sample.
  void sum(const T* dy, int64_t sample, int64_t begin, int64_t end, float* dw) const {
    for (int64_t i = begin; i < end; i += kPiece) {
      const int64_t count = std::min(kPiece, end - i);
      std::copy_n(Reads<T>(dy + i, count).data(), count, dw + i);
      for (int64_t n = 1; n < shape_.samples; ++n) {
        const Reads<T> row(dy + n * sample + i, count);
        add_rows(dw + i, row.data(), count, dw + i);
      }
    }
  }

  AddPositionsShape shape_;
};

}  // namespace

std::unique_ptr<Operation> make_add_positions(Shared& shared, const Spec& spec) {
  return by_element(shared.activation, [&]<class T>(T) -> std::unique_ptr<Operation> {
    return std::make_unique<CpuAddPositions<T>>(spec_as<AddPositionsSpec>(spec).shape());
  });
}

}  // namespace pushpull::ops::cpu

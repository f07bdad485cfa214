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
        const int64_t count = std::min(end * width - i, sample - place);
        add_rows(run.x[0].floats() + i, run.w[0] + place, count, run.y.floats() + i);
        i += count;
      }
    });
  }

  void backward_weights(const Run& run) override {
    const int64_t sample = shape_.positions * shape_.width;
    const float* dy = run.dy.floats();
    float* dw = run.dw[0];
    in_ranges(sample, 1 + kGrain / shape_.samples,
              [&](int64_t begin, int64_t end) { sum(dy, sample, begin, end, dw); });
    std::fill_n(dw + sample, shape_.limit * shape_.width - sample, 0.0F);
  }

  void backward_data(const Run& run) override {
    const float* dy = run.dy.floats();
    float* dx = run.dx[0].floats();
    if (dx == nullptr || dx == dy) return;
    in_ranges(
        shape_.samples * shape_.positions * shape_.width, kGrain,
        [&](int64_t begin, int64_t end) { std::copy_n(dy + begin, end - begin, dx + begin); });
  }

 private:
  // Sums pieces that stay in the first cache, sample after sample.
  void sum(const float* dy, int64_t sample, int64_t begin, int64_t end, float* dw) const {
    constexpr int64_t kPiece = 2'048;
    for (int64_t i = begin; i < end; i += kPiece) {
      const int64_t count = std::min(kPiece, end - i);
      std::copy_n(dy + i, count, dw + i);
      for (int64_t n = 1; n < shape_.samples; ++n) {
        add_rows(dw + i, dy + n * sample + i, count, dw + i);
      }
    }
  }

  AddPositionsShape shape_;
};

}  // namespace

std::unique_ptr<Operation> make_add_positions(Shared& /*shared*/, const Spec& spec) {
  return std::make_unique<CpuAddPositions>(spec_as<AddPositionsSpec>(spec).shape());
}

}  // namespace pushpull::ops::cpu

// Sums gradients in host memory. Slices are sent from the same buffer.
#include <utility>

#include "common/base/simd.h"
#include "worker/compute/finite.h"
#include "worker/compute/gradient_sum.h"

namespace pushpull {

namespace {

PUSHPULL_SIMD void add_range(const float* left, float* right, int64_t lo, int64_t hi) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = lo; i < hi; ++i) right[i] = left[i] + right[i];
}

class HostSum final : public GradientSum {
 public:
  HostSum(const TensorTable& table, const SliceMap& map, FloatAllocator memory)
      : GradientSum(table, map), pool_(total(), std::move(memory)) {}

  std::span<const float> sum() const override { return {top(), total()}; }
  bool finite(int /*slice*/, const Payload& part) const override {
    return all_finite(part.floats(), static_cast<int64_t>(part.float_count()));
  }

 private:
  std::shared_ptr<float[]> take() override { return pool_.get(); }
  void add(const float* left, float* right, Range range) override {
    add_range(left, right, range.lo, range.hi);
  }
  void slice_done(int slice, const std::shared_ptr<float[]>& sum,
                  const SliceReady& ready) override {
    const Range s = map().elements(slice);
    const std::span<const float> part(sum.get() + s.lo, static_cast<size_t>(s.size()));
    ready(slice, {sum, std::as_bytes(part)});
  }

  BufferPool pool_;
};

}  // namespace

std::unique_ptr<GradientSum> make_host_sum(const TensorTable& table, const SliceMap& map,
                                           FloatAllocator memory) {
  return std::make_unique<HostSum>(table, map, std::move(memory));
}

}  // namespace pushpull

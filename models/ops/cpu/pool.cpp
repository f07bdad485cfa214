// Pooling.

#include "models/ops/pool.h"

#include <algorithm>

#include "common/base/simd.h"
#include "models/ops/cpu/operations.h"
#include "models/ops/cpu/split.h"

namespace pushpull::ops::cpu {

// Global average pooling as own loops over a block of channels, in the order of the pixels.

namespace {

template <int64_t kBlock>
PUSHPULL_INLINE void add_pixels(const float* x, int64_t pixels, float* to) {
  float sums[kBlock];
  for (int64_t k = 0; k < kBlock; ++k) sums[k] = to[k];
  for (int64_t i = 0; i < pixels; ++i) {
    for (int64_t k = 0; k < kBlock; ++k) sums[k] += x[i * kBlock + k];
  }
  for (int64_t k = 0; k < kBlock; ++k) to[k] = sums[k];
}

template <int64_t kBlock>
PUSHPULL_INLINE void fill_pixels(const float* gradients, int64_t area, float* dx) {
  for (int64_t i = 0; i < area; ++i) {
    for (int64_t k = 0; k < kBlock; ++k) dx[i * kBlock + k] = gradients[k];
  }
}

// PUSHPULL_SIMD cannot stand before a template.
PUSHPULL_SIMD void add_pixels_of_8(const float* x, int64_t pixels, float* sums) {
  add_pixels<8>(x, pixels, sums);
}
PUSHPULL_SIMD void add_pixels_of_16(const float* x, int64_t pixels, float* sums) {
  add_pixels<16>(x, pixels, sums);
}
PUSHPULL_SIMD void fill_8(const float* gradients, int64_t area, float* dx) {
  fill_pixels<8>(gradients, area, dx);
}
PUSHPULL_SIMD void fill_16(const float* gradients, int64_t area, float* dx) {
  fill_pixels<16>(gradients, area, dx);
}

template <class T>
class CpuAveragePool final : public Operation {
 public:
  explicit CpuAveragePool(const ImageShape& image)
      : block_(native_tag() == Tag::nChw16c ? 16 : 8),
        channels_(image.channels),
        area_(image.height * image.width),
        blocks_((image.channels + block_ - 1) / block_),
        rows_(image.samples * blocks_) {}

  Needs needs() const override { return {}; }

  void forward(const Run& run) override {
    for_each_block([&](int64_t row, int64_t first, int64_t count) {
      float means[kMaxBlock] = {};
      const T* x = elements<T>(run.x[0]) + row * area_ * block_;
      for_each_piece([&](int64_t i, int64_t n) {
        const Reads<T> pixels(x + i, n);
        (block_ == 16 ? add_pixels_of_16 : add_pixels_of_8)(pixels.data(), n / block_, means);
      });
      for (float& mean : means) mean /= static_cast<float>(area_);
      const Writes<T> y(elements<T>(run.y) + first, count);
      std::copy_n(means, count, y.data());
    });
  }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    if (run.dx[0].data == nullptr) return;
    for_each_block([&](int64_t row, int64_t first, int64_t count) {
      float gradients[kMaxBlock] = {};  // zeros behind the last channel
      const Reads<T> dy(elements<T>(run.dy) + first, count);
      for (int64_t k = 0; k < count; ++k) gradients[k] = dy.data()[k] / static_cast<float>(area_);
      T* dx = elements<T>(run.dx[0]) + row * area_ * block_;
      for_each_piece([&](int64_t i, int64_t n) {
        const Writes<T> pixels(dx + i, n);
        (block_ == 16 ? fill_16 : fill_8)(gradients, n / block_, pixels.data());
      });
    });
  }

 private:
  static constexpr int64_t kMaxBlock = 16;

  // Calls body(block, its first element of [N, C], its number of channels).
  template <class Body>
  void for_each_block(const Body& body) const {
    in_ranges(rows_, rows_of_grain(area_ * block_), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t sample = row / blocks_;
        const int64_t channel = row % blocks_ * block_;
        body(row, sample * channels_ + channel, std::min(block_, channels_ - channel));
      }
    });
  }

  // Calls body(first element, elements) on whole pixels of a block of channels.
  template <class Body>
  void for_each_piece(const Body& body) const {
    const int64_t size = area_ * block_;
    const int64_t step = std::is_same_v<T, float> ? size : kPiece;
    for (int64_t i = 0; i < size; i += step) body(i, std::min(step, size - i));
  }

  int64_t block_;  // channels
  int64_t channels_;
  int64_t area_;
  int64_t blocks_;  // of a sample
  int64_t rows_;    // blocks of all samples
};

}  // namespace

std::unique_ptr<Operation> make_average_pool(Shared& shared, const Spec& spec) {
  return by_element(shared.activation, [&]<class T>(T) -> std::unique_ptr<Operation> {
    return std::make_unique<CpuAveragePool<T>>(spec_as<AveragePoolSpec>(spec).image());
  });
}

// Max pooling on oneDNN. Its workspace records the maximum of each window.

namespace {

struct MaxPoolPlans {
  MaxPoolPlans(const Shared& shared, const MaxPoolShape& shape)
      : kernel{shape.kernel, shape.kernel},
        stride{shape.stride, shape.stride},
        padding{shape.padding, shape.padding},
        x(describe(dims_of(shape.image), native_tag(), shared.activation)),
        y(describe(dims_of(shape.output()), native_tag(), shared.activation)),
        forward({dnnl::prop_kind::forward_training, dnnl::algorithm::pooling_max, x, y, stride,
                 kernel, padding, padding},
                attributes(), shared.engine),
        backward({dnnl::algorithm::pooling_max, x, y, stride, kernel, padding, padding},
                 attributes(), shared.engine, forward) {}
  dnnl::memory::dims kernel;
  dnnl::memory::dims stride;
  dnnl::memory::dims padding;
  dnnl::memory::desc x;
  dnnl::memory::desc y;
  dnnl::pooling_forward::primitive_desc forward;
  dnnl::pooling_backward::primitive_desc backward;
};

// Keeps the workspace.
class CpuMaxPool final : public Operation {
 public:
  CpuMaxPool(Shared& shared, const MaxPoolShape& shape)
      : CpuMaxPool(shared, MaxPoolPlans(shared, shape)) {}

  Needs needs() const override { return {.kept_bytes = workspace_ * sizeof(float)}; }

  void forward(const Run& run) override {
    forward_.bind(DNNL_ARG_SRC, run.x[0].data);
    forward_.bind(DNNL_ARG_DST, run.y.data);
    forward_.bind(DNNL_ARG_WORKSPACE, run.kept);
    forward_.run();
  }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    if (run.dx[0].data == nullptr) return;
    backward_.bind(DNNL_ARG_DIFF_DST, run.dy.data);
    backward_.bind(DNNL_ARG_DIFF_SRC, run.dx[0].data);
    backward_.bind(DNNL_ARG_WORKSPACE, run.kept);
    backward_.run();
  }

 private:
  CpuMaxPool(Shared& shared, const MaxPoolPlans& plans)
      : forward_(shared, dnnl::pooling_forward(plans.forward), plans.forward.scratchpad_desc(),
                 {{DNNL_ARG_SRC, plans.x},
                  {DNNL_ARG_DST, plans.y},
                  {DNNL_ARG_WORKSPACE, plans.forward.workspace_desc()}}),
        backward_(shared, dnnl::pooling_backward(plans.backward), plans.backward.scratchpad_desc(),
                  {{DNNL_ARG_DIFF_DST, plans.y},
                   {DNNL_ARG_DIFF_SRC, plans.x},
                   {DNNL_ARG_WORKSPACE, plans.forward.workspace_desc()}}),
        workspace_(floats_of(plans.forward.workspace_desc())) {}

  Primitive forward_;
  Primitive backward_;
  size_t workspace_;  // floats
};

}  // namespace

std::unique_ptr<Operation> make_max_pool(Shared& shared, const Spec& spec) {
  return std::make_unique<CpuMaxPool>(shared, spec_as<MaxPoolSpec>(spec).shape());
}

}  // namespace pushpull::ops::cpu

// Batch normalisation on oneDNN with its fused ReLU; the ReLU's mask is kept in the workspace.
#include <algorithm>

#include "models/ops/cpu/operations.h"
#include "models/ops/norms.h"

namespace pushpull::ops::cpu {

namespace {

using Flags = dnnl::normalization_flags;

Flags flags_of(const BatchNormShape& shape) {
  const Flags affine = Flags::use_scale | Flags::use_shift;
  return shape.relu ? affine | Flags::fuse_norm_relu : affine;
}

struct BatchNormPlans {
  BatchNormPlans(const Shared& shared, const BatchNormShape& shape)
      : image(describe(dims_of(shape.image), native_tag(), shared.activation)),
        vector(describe({shape.image.channels}, Tag::x)),
        forward({dnnl::prop_kind::forward_training, image, shape.epsilon, flags_of(shape)},
                attributes(), shared.engine),
        infer({dnnl::prop_kind::forward_inference, image, shape.epsilon,
               flags_of(shape) | Flags::use_global_stats},
              attributes(), shared.engine),
        backward({dnnl::prop_kind::backward, image, image, shape.epsilon, flags_of(shape)},
                 attributes(), shared.engine, forward) {}
  dnnl::memory::desc image;
  dnnl::memory::desc vector;
  dnnl::batch_normalization_forward::primitive_desc forward;
  dnnl::batch_normalization_forward::primitive_desc infer;
  dnnl::batch_normalization_backward::primitive_desc backward;
};

// Returns the floats of whole cache lines.
size_t whole_lines(size_t floats) {
  constexpr size_t kLine = 64 / sizeof(float);
  return (floats + kLine - 1) / kLine * kLine;
}

// Keeps the batch's mean and biased variance, and the workspace.
class CpuBatchNorm final : public Operation {
 public:
  CpuBatchNorm(Shared& shared, const BatchNormShape& shape)
      : CpuBatchNorm(shared, shape, BatchNormPlans(shared, shape)) {}

  Needs needs() const override {
    return {.inputs = 1,
            .kept_bytes = (2 * vector_ + workspace_) * sizeof(float),
            .gradient_in_place = true};
  }

  void forward(const Run& run) override {
    load(run);
    Primitive& primitive = run.training ? forward_ : infer_;
    primitive.bind(DNNL_ARG_SRC, run.x[0].data);
    primitive.bind(DNNL_ARG_DST, run.y.data);
    if (!run.training) {
      std::copy_n(run.w[2], channels_, given_mean_.data());
      std::copy_n(run.w[3], channels_, given_variance_.data());
      infer_.run();
      return;
    }
    bind_kept(forward_, run);
    forward_.run();
    const float* mean = static_cast<const float*>(run.kept);
    const float* variance = mean + vector_;
    std::copy_n(mean, channels_, run.dw[2]);
    for (int64_t c = 0; c < channels_; ++c) run.dw[3][c] = variance[c] * unbiased_;
  }

  void backward_weights(const Run& /*run*/) override {}

  void backward_data(const Run& run) override {
    load(run);
    bind_kept(backward_, run);
    backward_.bind(DNNL_ARG_SRC, run.x[0].data);
    backward_.bind(DNNL_ARG_DIFF_DST, run.dy.data);
    // the primitive computes dx in any case
    backward_.bind(DNNL_ARG_DIFF_SRC, run.dx[0].data == nullptr ? run.dy.data : run.dx[0].data);
    backward_.run();
    std::copy_n(dscale_.data(), channels_, run.dw[0]);
    std::copy_n(dshift_.data(), channels_, run.dw[1]);
  }

 private:
  CpuBatchNorm(Shared& shared, const BatchNormShape& shape, const BatchNormPlans& plans)
      : channels_(shape.image.channels),
        unbiased_(unbiased(shape.image)),
        forward_(shared, dnnl::batch_normalization_forward(plans.forward),
                 plans.forward.scratchpad_desc(),
                 {{DNNL_ARG_SRC, plans.image},
                  {DNNL_ARG_SCALE, plans.vector},
                  {DNNL_ARG_SHIFT, plans.vector},
                  {DNNL_ARG_MEAN, plans.vector},
                  {DNNL_ARG_VARIANCE, plans.vector},
                  {DNNL_ARG_WORKSPACE, plans.forward.workspace_desc()},
                  {DNNL_ARG_DST, plans.image}}),
        infer_(shared, dnnl::batch_normalization_forward(plans.infer),
               plans.infer.scratchpad_desc(),
               {{DNNL_ARG_SRC, plans.image},
                {DNNL_ARG_SCALE, plans.vector},
                {DNNL_ARG_SHIFT, plans.vector},
                {DNNL_ARG_MEAN, plans.vector},
                {DNNL_ARG_VARIANCE, plans.vector},
                {DNNL_ARG_DST, plans.image}}),
        backward_(shared, dnnl::batch_normalization_backward(plans.backward),
                  plans.backward.scratchpad_desc(),
                  {{DNNL_ARG_SRC, plans.image},
                   {DNNL_ARG_DIFF_DST, plans.image},
                   {DNNL_ARG_SCALE, plans.vector},
                   {DNNL_ARG_SHIFT, plans.vector},
                   {DNNL_ARG_MEAN, plans.vector},
                   {DNNL_ARG_VARIANCE, plans.vector},
                   {DNNL_ARG_WORKSPACE, plans.forward.workspace_desc()},
                   {DNNL_ARG_DIFF_SRC, plans.image},
                   {DNNL_ARG_DIFF_SCALE, plans.vector},
                   {DNNL_ARG_DIFF_SHIFT, plans.vector}}),
        vector_(whole_lines(floats_of(plans.vector))),
        workspace_(whole_lines(floats_of(plans.forward.workspace_desc()))) {
    for (Buffer* vector : {&scale_, &shift_, &given_mean_, &given_variance_, &dscale_, &dshift_}) {
      *vector = allocate(vector_);
    }
    for (Primitive* primitive : {&forward_, &infer_, &backward_}) {
      primitive->bind(DNNL_ARG_SCALE, scale_.data());
      primitive->bind(DNNL_ARG_SHIFT, shift_.data());
    }
    infer_.bind(DNNL_ARG_MEAN, given_mean_.data());
    infer_.bind(DNNL_ARG_VARIANCE, given_variance_.data());
    backward_.bind(DNNL_ARG_DIFF_SCALE, dscale_.data());
    backward_.bind(DNNL_ARG_DIFF_SHIFT, dshift_.data());
  }

  // n / (n - 1), where n is the number of values behind a channel's statistics.
  static float unbiased(const ImageShape& image) {
    const auto n = static_cast<double>(image.samples * image.height * image.width);
    return static_cast<float>(n / (n - 1.0));
  }

  void load(const Run& run) {
    std::copy_n(run.w[0], channels_, scale_.data());
    std::copy_n(run.w[1], channels_, shift_.data());
  }

  void bind_kept(Primitive& primitive, const Run& run) const {
    auto* kept = static_cast<float*>(run.kept);
    primitive.bind(DNNL_ARG_MEAN, kept);
    primitive.bind(DNNL_ARG_VARIANCE, kept + vector_);
    primitive.bind(DNNL_ARG_WORKSPACE, kept + 2 * vector_);
  }

  int64_t channels_;
  float unbiased_;
  Primitive forward_;
  Primitive infer_;
  Primitive backward_;
  size_t vector_;     // floats
  size_t workspace_;  // floats
  // Aligned copies of the caller's vectors.
  Buffer scale_, shift_, given_mean_, given_variance_, dscale_, dshift_;
};

}  // namespace

std::unique_ptr<Operation> make_batch_norm(Shared& shared, const Spec& spec) {
  return std::make_unique<CpuBatchNorm>(shared, spec_as<BatchNormSpec>(spec).shape());
}

}  // namespace pushpull::ops::cpu

// Batch normalisation on oneDNN with its fused ReLU; the ReLU's mask is kept in the workspace.
#include <algorithm>

#include "models/ops/cpu/operations.h"

namespace pushpull::ops::cpu {

namespace {

using Flags = dnnl::normalization_flags;
using ForwardPlan = dnnl::batch_normalization_forward::primitive_desc;
using BackwardPlan = dnnl::batch_normalization_backward::primitive_desc;

Flags flags_of(const BatchNormShape& shape) {
  const Flags affine = Flags::use_scale | Flags::use_shift;
  return shape.relu ? affine | Flags::fuse_norm_relu : affine;
}

struct Plans {
  Plans(const Shared& shared, const BatchNormShape& shape)
      : image(describe(dims_of(shape.image), native_tag())),
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
  ForwardPlan forward;
  ForwardPlan infer;
  BackwardPlan backward;
};

class CpuBatchNorm final : public BatchNorm {
 public:
  CpuBatchNorm(Shared& shared, const BatchNormShape& shape)
      : CpuBatchNorm(shared, shape, Plans(shared, shape)) {}

  void forward(const Activation* x, const float* scale, const float* shift, float* mean,
               float* variance, Activation* y) override {
    load(scale, shift);
    forward_.bind(DNNL_ARG_SRC, floats(x));
    forward_.bind(DNNL_ARG_DST, floats(y));
    forward_.run();
    std::copy_n(mean_.data(), channels_, mean);
    for (int64_t c = 0; c < channels_; ++c) variance[c] = variance_.data()[c] * unbiased_;
  }

  void infer(const Activation* x, const float* scale, const float* shift, const float* mean,
             const float* variance, Activation* y) override {
    load(scale, shift);
    std::copy_n(mean, channels_, given_mean_.data());
    std::copy_n(variance, channels_, given_variance_.data());
    infer_.bind(DNNL_ARG_SRC, floats(x));
    infer_.bind(DNNL_ARG_DST, floats(y));
    infer_.run();
  }

  void backward(const Activation* x, const Activation* dy, const float* scale, const float* shift,
                Activation* dx, float* dscale, float* dshift) override {
    load(scale, shift);
    backward_.bind(DNNL_ARG_SRC, floats(x));
    backward_.bind(DNNL_ARG_DIFF_DST, floats(dy));
    backward_.bind(DNNL_ARG_DIFF_SRC, floats(dx));
    backward_.run();
    std::copy_n(dscale_.data(), channels_, dscale);
    std::copy_n(dshift_.data(), channels_, dshift);
  }

 private:
  CpuBatchNorm(Shared& shared, const BatchNormShape& shape, const Plans& plans)
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
        workspace_(allocate(floats_of(plans.forward.workspace_desc()))) {
    const size_t floats = floats_of(plans.vector);
    for (Buffer* vector : {&scale_, &shift_, &mean_, &variance_, &given_mean_, &given_variance_,
                           &dscale_, &dshift_}) {
      *vector = allocate(floats);
    }
    for (Primitive* primitive : {&forward_, &infer_, &backward_}) {
      const bool infer = primitive == &infer_;
      primitive->bind(DNNL_ARG_SCALE, scale_.data());
      primitive->bind(DNNL_ARG_SHIFT, shift_.data());
      primitive->bind(DNNL_ARG_MEAN, infer ? given_mean_.data() : mean_.data());
      primitive->bind(DNNL_ARG_VARIANCE, infer ? given_variance_.data() : variance_.data());
      if (!infer) primitive->bind(DNNL_ARG_WORKSPACE, workspace_.data());
    }
    backward_.bind(DNNL_ARG_DIFF_SCALE, dscale_.data());
    backward_.bind(DNNL_ARG_DIFF_SHIFT, dshift_.data());
  }

  // n / (n - 1), where n is the number of values behind a channel's statistics.
  static float unbiased(const ImageShape& image) {
    const auto n = static_cast<double>(image.samples * image.height * image.width);
    return static_cast<float>(n / (n - 1.0));
  }

  void load(const float* scale, const float* shift) {
    std::copy_n(scale, channels_, scale_.data());
    std::copy_n(shift, channels_, shift_.data());
  }

  int64_t channels_;
  float unbiased_;
  Primitive forward_;
  Primitive infer_;
  Primitive backward_;
  Buffer workspace_;
  // Aligned copies of the caller's vectors; mean and variance are the batch's, biased.
  Buffer scale_, shift_, mean_, variance_, given_mean_, given_variance_, dscale_, dshift_;
};

}  // namespace

std::unique_ptr<BatchNorm> make_batch_norm(Shared& shared, const BatchNormShape& shape) {
  return std::make_unique<CpuBatchNorm>(shared, shape);
}

}  // namespace pushpull::ops::cpu

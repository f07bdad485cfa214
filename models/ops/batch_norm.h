// Batch normalisation of images in kNative, as torch.nn.BatchNorm2d, then max(y, 0) if `relu`:
//   y = (x - mean) / sqrt(variance + epsilon) * scale + shift, per channel.
// Parameters: scale, shift, mean, variance [C]. Training uses the batch's own statistics and
// reports them in the place of the gradients of mean and variance (the unbiased variance, which
// PyTorch's running_var accumulates; y itself uses the biased one). Evaluation uses the given ones.
// Source: Ioffe & Szegedy, arXiv 1502.03167.
#pragma once

#include "models/ops/operation.h"

namespace pushpull::ops {

struct BatchNormShape {
  ImageShape image;  // samples * height * width > 1
  float epsilon = 1e-5F;
  bool relu = false;
};

class BatchNormSpec final : public Spec {
 public:
  static constexpr const char* kName = "batch norm";

  explicit BatchNormSpec(const BatchNormShape& shape) : shape_(shape) {}
  const BatchNormShape& shape() const { return shape_; }

  const char* name() const override { return kName; }
  void check(const std::string& node, std::span<const ValueType> in) const override {
    const ImageShape& image = shape_.image;
    require_size(node, "input", image.samples * image.channels, image.height * image.width);
    require(image.samples * image.height * image.width > 1, node,
            "has one value per channel, which has no variance: raise micro-batch");
    require(shape_.epsilon > 0.0F, node, "needs an epsilon above 0");
    require_input(node, in.front(), native_image(image));
  }
  ValueType output() const override { return native_image(shape_.image); }
  std::vector<Shape> params() const override {
    return std::vector<Shape>(4, Shape{shape_.image.channels});
  }

 private:
  BatchNormShape shape_;
};

}  // namespace pushpull::ops

// Normalisation: of each channel over a batch, and of each row.
#pragma once

#include <utility>

#include "models/ops/operation.h"

namespace pushpull::ops {

// Batch normalisation of images in kNative, as torch.nn.BatchNorm2d, then max(y, 0) if `relu`:
//   y = (x - mean) / sqrt(variance + epsilon) * scale + shift, per channel.
// Parameters: scale, shift, mean, variance [C]. Training uses the batch's own statistics and
// reports them in the place of the gradients of mean and variance (the unbiased variance, which
// PyTorch's running_var accumulates; y itself uses the biased one). Evaluation uses the given ones.
// Source: Ioffe & Szegedy, arXiv 1502.03167.
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

// Normalises rows, as torch.nn.LayerNorm (Ba et al., arXiv:1607.06450) or, without centring, as
// torch.nn.RMSNorm (Zhang and Sennrich, arXiv:1910.07467).
//   x, y [N, E]; scale [E]; shift [E], only if centred.
//   y = (x - mean) / sqrt(variance + epsilon) * scale + shift, with the biased variance of the row;
//   without centring y = x / sqrt(mean of x^2 + epsilon) * scale.
// Backward, with r = 1 / sqrt(...), h = (x - mean) r, g = dy * scale:
//   dx = r (g - mean(g) - h mean(g h)); without centring without mean(g).
//   dscale = sum of dy h, dshift = sum of dy: over 64 rows each in rising order, these sums in
//   rising order; on a GPU over the same rows in another order.
struct LayerNormShape {
  int64_t rows = 0;   // N
  int64_t width = 0;  // E
  bool centred = true;
  float epsilon = 1e-5F;
};

class LayerNormSpec final : public Spec {
 public:
  static constexpr const char* kName = "layer norm";

  // output: the shape of x and y, rows by width.
  LayerNormSpec(const LayerNormShape& shape, Shape output)
      : shape_(shape), output_(std::move(output)) {}
  const LayerNormShape& shape() const { return shape_; }

  const char* name() const override { return kName; }
  void check(const std::string& node, std::span<const ValueType> in) const override {
    require_size(node, "output", shape_.rows, shape_.width);
    require(shape_.epsilon > 0.0F, node, "needs an epsilon above 0");
    require(output_.size() == shape_.rows * shape_.width && output_.last() == shape_.width, node,
            "needs rows of " + std::to_string(shape_.width) + " elements");
    require_input(node, in.front(), output());
  }
  ValueType output() const override { return activation(output_); }
  std::vector<Shape> params() const override {
    return std::vector<Shape>(shape_.centred ? 2 : 1, Shape{shape_.width});
  }

 private:
  LayerNormShape shape_;
  Shape output_;
};

}  // namespace pushpull::ops

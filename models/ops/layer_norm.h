// Normalises rows, as torch.nn.LayerNorm (Ba et al., arXiv:1607.06450) or, without centring, as
// torch.nn.RMSNorm (Zhang and Sennrich, arXiv:1910.07467).
//   x, y [N, E]; scale [E]; shift [E], only if centred.
//   y = (x - mean) / sqrt(variance + epsilon) * scale + shift, with the biased variance of the row;
//   without centring y = x / sqrt(mean of x^2 + epsilon) * scale.
// Backward, with r = 1 / sqrt(...), h = (x - mean) r, g = dy * scale:
//   dx = r (g - mean(g) - h mean(g h)); without centring without mean(g).
//   dscale = sum of dy h, dshift = sum of dy: over 64 rows each in rising order, these sums in
//   rising order; on a GPU over the same rows in another order.
#pragma once

#include <utility>

#include "models/ops/operation.h"

namespace pushpull::ops {

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

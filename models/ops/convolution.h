// Convolution (cross-correlation) of images, as torch.nn.Conv2d: y = x * w + b.
//   x [N, C, H, W], w [O, C, k, k], b [O], if there is one ->
//   y [N, O, (H + 2 padding - k) / stride + 1, ...], kNative; the division rounds down.
#pragma once

#include "models/ops/operation.h"

namespace pushpull::ops {

struct ConvolutionShape {
  ImageShape input;
  int64_t outputs = 0;                    // O
  int64_t kernel = 1;                     // k
  int64_t padding = 0;                    // zeros at each edge
  Layout input_layout = Layout::kNative;  // of x; kPlain is for the first layer
  bool input_gradient = true;             // dx may be wanted; needs kNative
  int64_t stride = 1;
  bool bias = true;

  ImageShape output() const {
    ImageShape y = input.windows(kernel, padding, stride);
    y.channels = outputs;
    return y;
  }
};

class ConvolutionSpec final : public Spec {
 public:
  static constexpr const char* kName = "convolution";

  explicit ConvolutionSpec(const ConvolutionShape& shape) : shape_(shape) {}
  const ConvolutionShape& shape() const { return shape_; }

  const char* name() const override { return kName; }
  void check(const std::string& node, std::span<const ValueType> in) const override {
    require(shape_.kernel > 0 && shape_.padding >= 0 && shape_.padding < shape_.kernel &&
                shape_.stride > 0,
            node,
            "has a kernel of " + std::to_string(shape_.kernel) + " with padding " +
                std::to_string(shape_.padding) + " and stride " + std::to_string(shape_.stride));
    const ImageShape& x = shape_.input;
    const ImageShape y = shape_.output();
    require_size(node, "input", x.samples * x.channels, x.height * x.width);
    require_size(node, "output", y.samples * y.channels, y.height * y.width);
    ValueType input = native_image(x);
    input.layout = shape_.input_layout;
    require_input(node, in.front(), input);
  }
  ValueType output() const override { return native_image(shape_.output()); }
  std::vector<Shape> params() const override {
    const Shape weight{shape_.outputs, shape_.input.channels, shape_.kernel, shape_.kernel};
    if (!shape_.bias) return {weight};
    return {weight, Shape{shape_.outputs}};
  }
  int64_t flops() const override {
    return 6 * shape_.output().size() * shape_.input.channels * shape_.kernel * shape_.kernel;
  }

 private:
  ConvolutionShape shape_;
};

}  // namespace pushpull::ops

// Pooling: the mean of each channel of an image, and the maximum of each window.
#pragma once

#include "models/ops/operation.h"

namespace pushpull::ops {

// Mean of each channel of an image, as torch.nn.AdaptiveAvgPool2d(1) and Flatten: [N, C, H, W] in
// the backend's layout -> [N, C]. Backward: dx = dy / (H * W).
class AveragePoolSpec final : public Spec {
 public:
  static constexpr const char* kName = "average pool";

  explicit AveragePoolSpec(const ImageShape& image) : image_(image) {}
  const ImageShape& image() const { return image_; }

  const char* name() const override { return kName; }
  void check(const std::string& node, std::span<const ValueType> in) const override {
    require_size(node, "input", image_.samples * image_.channels, image_.height * image_.width);
    require_input(node, in.front(), native_image(image_));
  }
  ValueType output() const override { return activation({image_.samples, image_.channels}); }

 private:
  ImageShape image_;
};

// Maximum of each k x k window of images, as torch.nn.MaxPool2d: rows and columns that fill no
// window are dropped, and padding never wins. The gradient goes to the first maximum.
//   x [N, C, H, W] -> y [N, C, (H + 2 padding - k) / stride + 1, ...], both kNative.
struct MaxPoolShape {
  ImageShape image;
  int64_t kernel = 2;  // k
  int64_t stride = 2;
  int64_t padding = 0;  // at each edge, at most k / 2

  ImageShape output() const { return image.windows(kernel, padding, stride); }
};

class MaxPoolSpec final : public Spec {
 public:
  static constexpr const char* kName = "max pool";

  explicit MaxPoolSpec(const MaxPoolShape& shape) : shape_(shape) {}
  const MaxPoolShape& shape() const { return shape_; }

  const char* name() const override { return kName; }
  void check(const std::string& node, std::span<const ValueType> in) const override {
    const ImageShape& image = shape_.image;
    require(shape_.kernel > 0 && shape_.stride > 0 && shape_.padding >= 0 &&
                2 * shape_.padding <= shape_.kernel,
            node,
            "has a window of " + std::to_string(shape_.kernel) + " with padding " +
                std::to_string(shape_.padding) + " and stride " + std::to_string(shape_.stride));
    require_size(node, "input", image.samples * image.channels, image.height * image.width);
    const ImageShape y = shape_.output();
    require(y.height > 0 && y.width > 0, node,
            "has images of " + std::to_string(image.height) + "x" + std::to_string(image.width) +
                ", smaller than its window");
    require_input(node, in.front(), native_image(image));
  }
  ValueType output() const override { return native_image(shape_.output()); }

 private:
  MaxPoolShape shape_;
};

}  // namespace pushpull::ops

// Maximum of each window of images; see MaxPoolShape. The gradient goes to the first maximum.
#pragma once

#include "models/ops/operation.h"

namespace pushpull::ops {

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

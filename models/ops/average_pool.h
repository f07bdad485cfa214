// Mean of each channel of an image, as torch.nn.AdaptiveAvgPool2d(1) and Flatten: [N, C, H, W] in
// the backend's layout -> [N, C]. Backward: dx = dy / (H * W).
#pragma once

#include "models/ops/operation.h"

namespace pushpull::ops {

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

}  // namespace pushpull::ops

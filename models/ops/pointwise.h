// Operations that compute each element from the inputs' elements at its place.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

#include "models/ops/operation.h"

namespace pushpull::ops {

// An activation function of each element; all of them are 0 at 0, so images in blocks keep their
// padding.
//   relu: max(x, 0); tanh; gelu-erf: x/2 (1 + erf(x / sqrt 2)); gelu-tanh:
//   x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel, arXiv:1606.08415).
// Backward: dx = dy f'(x). The derivative of relu at 0 is 0.
enum class Function { kRelu, kTanh, kGeluErf, kGeluTanh };

class ActivateSpec final : public Spec {
 public:
  static constexpr const char* kName = "activate";

  ActivateSpec(Function function, ValueType type) : function_(function), type_(std::move(type)) {}
  ActivateSpec(Function function, Shape shape)
      : ActivateSpec(function, activation(std::move(shape))) {}
  Function function() const { return function_; }

  const char* name() const override { return kName; }
  void check(const std::string& node, std::span<const ValueType> in) const override {
    require_size(node, "output", type_.shape.size(), 1);
    require_input(node, in.front(), type_);
  }
  ValueType output() const override { return type_; }

 private:
  Function function_;
  ValueType type_;
};

// The sum of two values of the same type: y = a + b. Backward: da = dy, db = dy.
class AddSpec final : public Spec {
 public:
  static constexpr const char* kName = "add";

  explicit AddSpec(ValueType type) : type_(std::move(type)) {}

  const char* name() const override { return kName; }
  void check(const std::string& node, std::span<const ValueType> in) const override {
    require_size(node, "output", type_.shape.size(), 1);
    require(in.size() == 2, node, "adds two values");
    for (const ValueType& input : in) require_input(node, input, type_);
  }
  ValueType output() const override { return type_; }

 private:
  ValueType type_;
};

// Sets elements to 0 with probability p in training and multiplies the others by 1 / (1 - p)
// (Srivastava et al., JMLR 15, 2014). Evaluation: y = x.
//   Element i is kept if word i of the stream of Run::key is at least p 2^32 (dropout_word in
//   common/base/random.h): the same for any number of workers, and in backward.

// The rule of a dropout with probability p.
struct DropoutRule {
  explicit DropoutRule(float probability)
      : least(static_cast<uint32_t>(std::ceil(static_cast<double>(probability) * 0x1p32))),
        factor(static_cast<float>(1.0 / (1.0 - static_cast<double>(probability)))) {}
  uint32_t least;  // word of an element that is kept
  float factor;    // of a kept element
};

class DropoutSpec final : public Spec {
 public:
  static constexpr const char* kName = "dropout";

  DropoutSpec(float probability, Shape shape)
      : probability_(probability), shape_(std::move(shape)) {}
  float probability() const { return probability_; }
  const Shape& shape() const { return shape_; }

  const char* name() const override { return kName; }
  void check(const std::string& node, std::span<const ValueType> in) const override {
    require_size(node, "output", shape_.size(), 1);
    require(probability_ >= 0.0F && probability_ < 1.0F, node,
            "needs a dropout from 0 to below 1, got " + std::to_string(probability_));
    require_input(node, in.front(), output());
  }
  ValueType output() const override { return activation(shape_); }
  bool is_random() const override { return true; }

 private:
  float probability_;
  Shape shape_;
};

// A field of floats as activations of the same shape. It has no gradient.
class ElementsSpec final : public Spec {
 public:
  static constexpr const char* kName = "elements";

  explicit ElementsSpec(Shape shape) : shape_(std::move(shape)) {}
  const Shape& shape() const { return shape_; }

  const char* name() const override { return kName; }
  void check(const std::string& node, std::span<const ValueType> in) const override {
    require_size(node, "input", shape_.size(), 1);
    require_input(node, in.front(), {Element::kFloat, Layout::kPlain, shape_});
  }
  ValueType output() const override { return activation(shape_); }

 private:
  Shape shape_;
};

// Rows of an image, as torch.nn.Flatten: [N, C, H, W] in the backend's layout -> [N, C * H * W].
class FlattenSpec final : public Spec {
 public:
  static constexpr const char* kName = "flatten";

  explicit FlattenSpec(const ImageShape& image) : image_(image) {}
  const ImageShape& image() const { return image_; }

  const char* name() const override { return kName; }
  void check(const std::string& node, std::span<const ValueType> in) const override {
    require_size(node, "input", image_.samples * image_.channels, image_.height * image_.width);
    require_input(node, in.front(), native_image(image_));
  }
  ValueType output() const override {
    return activation({image_.samples, image_.size() / image_.samples});
  }

 private:
  ImageShape image_;
};

}  // namespace pushpull::ops

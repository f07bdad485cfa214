// An activation function of each element.
//   relu: max(x, 0); tanh; gelu-erf: x/2 (1 + erf(x / sqrt 2)); gelu-tanh:
//   x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel, arXiv:1606.08415).
// Backward: dx = dy f'(x). The derivative of relu at 0 is 0.
#pragma once

#include <utility>

#include "models/ops/operation.h"

namespace pushpull::ops {

enum class Function { kRelu, kTanh, kGeluErf, kGeluTanh };

class ActivateSpec final : public Spec {
 public:
  static constexpr const char* kName = "activate";

  ActivateSpec(Function function, Shape shape) : function_(function), shape_(std::move(shape)) {}
  Function function() const { return function_; }
  const Shape& shape() const { return shape_; }

  const char* name() const override { return kName; }
  void check(const std::string& node, std::span<const ValueType> in) const override {
    require_size(node, "output", shape_.size(), 1);
    require_input(node, in.front(), output());
  }
  ValueType output() const override { return activation(shape_); }

 private:
  Function function_;
  Shape shape_;
};

}  // namespace pushpull::ops

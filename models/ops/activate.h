// An activation function of each element; all of them are 0 at 0, so images in blocks keep their
// padding.
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

}  // namespace pushpull::ops

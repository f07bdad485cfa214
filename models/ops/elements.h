// A field of floats as activations of the same shape. It has no gradient.
#pragma once

#include <utility>

#include "models/ops/operation.h"

namespace pushpull::ops {

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

}  // namespace pushpull::ops

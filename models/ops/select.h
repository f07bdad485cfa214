// One slice of a middle dimension.
//   x [A, B, C], y[a, c] = x[a, index, c], A * C elements. Backward: dx is 0 elsewhere.
#pragma once

#include <utility>

#include "models/ops/operation.h"

namespace pushpull::ops {

struct SelectShape {
  int64_t outer = 0;  // A
  int64_t size = 0;   // B
  int64_t inner = 0;  // C
  int64_t index = 0;
};

class SelectSpec final : public Spec {
 public:
  static constexpr const char* kName = "select";

  // output: a shape of A * C elements.
  SelectSpec(const SelectShape& shape, Shape output) : shape_(shape), output_(std::move(output)) {}
  const SelectShape& shape() const { return shape_; }

  const char* name() const override { return kName; }
  void check(const std::string& node, std::span<const ValueType> in) const override {
    require_size(node, "input", shape_.outer * shape_.size, shape_.inner);
    require(shape_.index >= 0 && shape_.index < shape_.size, node, "selects past the end");
    require(output_.size() == shape_.outer * shape_.inner, node, "has another output shape");
    require(in.size() == 1 && in[0].layout == Layout::kPlain &&
                in[0].element == Element::kActivation &&
                in[0].shape.size() == shape_.outer * shape_.size * shape_.inner,
            node,
            "needs " + std::to_string(shape_.outer * shape_.size * shape_.inner) +
                " elements, got " + in[0].shape.text());
  }
  ValueType output() const override { return activation(output_); }

 private:
  SelectShape shape_;
  Shape output_;
};

}  // namespace pushpull::ops

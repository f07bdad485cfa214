// The sum of two values of the same type: y = a + b. Backward: da = dy, db = dy.
#pragma once

#include <utility>

#include "models/ops/operation.h"

namespace pushpull::ops {

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

}  // namespace pushpull::ops

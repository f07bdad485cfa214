// Squared error of each target.
//   x [N] floats, target [N] floats; y[n] = (x[n] - target[n])^2. Only the first Run::valid ones
//   are read and written.
// Backward: dx = scale * 2 (x - target), for all.
#pragma once

#include "models/ops/operation.h"

namespace pushpull::ops {

class SquaredErrorSpec final : public Spec {
 public:
  static constexpr const char* kName = "squared error";

  explicit SquaredErrorSpec(int64_t targets) : targets_(targets) {}
  int64_t targets() const { return targets_; }

  const char* name() const override { return kName; }
  void check(const std::string& node, std::span<const ValueType> in) const override {
    require_size(node, "output", targets_, 1);
    require(in.size() == 2 && in[0].shape.size() == targets_ && in[0].layout == Layout::kPlain &&
                in[1].element == Element::kFloat && in[1].shape.size() == targets_,
            node, "needs " + std::to_string(targets_) + " outputs and float targets");
  }
  ValueType output() const override { return {Element::kFloat, Layout::kPlain, {targets_}}; }

 private:
  int64_t targets_;
};

}  // namespace pushpull::ops

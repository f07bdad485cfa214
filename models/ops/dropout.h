// Sets elements to 0 with probability p in training and multiplies the others by 1 / (1 - p)
// (Srivastava et al., JMLR 15, 2014). Evaluation: y = x.
//   Element i is kept if word i of the stream of Run::key is at least p 2^32 (dropout_word in
//   common/base/random.h): the same for any number of workers, and in backward.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

#include "models/ops/operation.h"

namespace pushpull::ops {

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

}  // namespace pushpull::ops

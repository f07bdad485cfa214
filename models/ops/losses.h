// The losses of heads: cross-entropy and squared error.
#pragma once

#include <optional>
#include <utility>

#include "models/ops/operation.h"

namespace pushpull::ops {

// Softmax and cross-entropy against one label per row, by the log-sum-exp trick.
//   x [N, M]; labels [N] ints, 0 <= label < M or `ignored`; y [N]: the loss of each row.
//   l = logsumexp(x) - x[label]; with smoothing e (Szegedy et al., arXiv:1512.00567), in training:
//   (1 - e) l + e mean over m of (logsumexp(x) - x[m]); times the class's weight, in training.
//   An ignored row has loss 0. Only the first Run::valid rows are read and written.
// Backward: dx = scale * weight * ((1 - e) (softmax - 1_label) + e (softmax - 1 / M)), for all rows.
struct CrossEntropyShape {
  int64_t samples = 0;  // N
  int64_t classes = 0;  // M
};

struct CrossEntropyOptions {
  std::optional<int32_t> ignored;
  float smoothing = 0.0F;            // 0 to 1
  std::vector<float> class_weights;  // M, or none
};

class CrossEntropySpec final : public Spec {
 public:
  static constexpr const char* kName = "cross-entropy";

  CrossEntropySpec(const CrossEntropyShape& shape, CrossEntropyOptions options)
      : shape_(shape), options_(std::move(options)) {}
  const CrossEntropyShape& shape() const { return shape_; }
  const CrossEntropyOptions& options() const { return options_; }

  const char* name() const override { return kName; }
  void check(const std::string& node, std::span<const ValueType> in) const override {
    require_size(node, "scores", shape_.samples, shape_.classes);
    require(in.size() == 2 && in[0].shape.size() == shape_.samples * shape_.classes &&
                in[0].shape.last() == shape_.classes && in[0].layout == Layout::kPlain,
            node, "needs scores of " + std::to_string(shape_.classes) + " classes");
    require(in[1].element == Element::kInt && in[1].shape.size() == shape_.samples, node,
            "needs " + std::to_string(shape_.samples) + " labels");
    require(options_.smoothing >= 0.0F && options_.smoothing < 1.0F, node,
            "needs a smoothing from 0 to below 1");
    require(options_.class_weights.empty() || std::ssize(options_.class_weights) == shape_.classes,
            node, "needs one weight per class");
  }
  ValueType output() const override { return {Element::kFloat, Layout::kPlain, {shape_.samples}}; }

 private:
  CrossEntropyShape shape_;
  CrossEntropyOptions options_;
};

// Squared error of each target.
//   x [N] floats, target [N] floats; y[n] = (x[n] - target[n])^2. Only the first Run::valid ones
//   are read and written.
// Backward: dx = scale * 2 (x - target), for all.
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

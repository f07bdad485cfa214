// Fully connected: y = x wᵀ + b, then max(y, 0) if `relu`.
//   x [N, K]; w [M, K] as torch.nn.Linear, or [K, M] if `transposed` (Conv1D of Hugging Face's
//   GPT-2); b [M], if there is one; y [N, M].
// Backward: dw = dyᵀ x, db[m] = sum of dy[n, m] in rising order of n, dx = dy w.
#pragma once

#include <utility>

#include "models/ops/operation.h"

namespace pushpull::ops {

struct LinearShape {
  int64_t samples = 0;  // N
  int64_t inputs = 0;   // K
  int64_t outputs = 0;  // M
  bool relu = false;
  bool bias = true;
  bool transposed = false;
};

class LinearSpec final : public Spec {
 public:
  static constexpr const char* kName = "linear";

  // output: N x M elements, whose last size is M; empty: [N, M].
  explicit LinearSpec(const LinearShape& shape, Shape output = {})
      : shape_(shape),
        output_(output.rank() > 0 ? std::move(output) : Shape{shape.samples, shape.outputs}) {}
  const LinearShape& shape() const { return shape_; }

  const char* name() const override { return kName; }
  void check(const std::string& node, std::span<const ValueType> in) const override {
    const auto& [rows, inputs, outputs, relu, bias, transposed] = shape_;
    require_size(node, "weight", outputs, inputs);
    require_size(node, "input", rows, inputs);
    require_size(node, "output", rows, outputs);
    require(in.size() == 1 && in[0].layout == Layout::kPlain && in[0].shape.size() == rows * inputs,
            node,
            "needs " + std::to_string(rows) + " rows of " + std::to_string(inputs) +
                " elements, got " + in[0].shape.text());
  }
  ValueType output() const override { return activation(output_); }
  std::vector<Shape> params() const override {
    const Shape weight = shape_.transposed ? Shape{shape_.inputs, shape_.outputs}
                                           : Shape{shape_.outputs, shape_.inputs};
    if (!shape_.bias) return {weight};
    return {weight, Shape{shape_.outputs}};
  }
  int64_t flops() const override { return 6 * shape_.samples * shape_.inputs * shape_.outputs; }

 private:
  LinearShape shape_;
  Shape output_;
};

}  // namespace pushpull::ops

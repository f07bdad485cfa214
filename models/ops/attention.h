// Scaled dot-product attention of several heads (Vaswani et al., arXiv:1706.03762), without ever
// storing all scores: backward computes them again from the logarithm of the sum of each row (Dao et
// al., arXiv:2205.14135), so memory is linear in T.
//   Inputs: one packed [N, T, 3E] (q, k, v of all heads side by side), or q, k, v [N, T, E] each;
//   then, if `mask`, ints [N, T]: 0 hides a key from all queries. E = heads * width.
//   S = q kᵀ / sqrt(width) per head; causal: query i sees the keys 0 to i; P = softmax(S) over the
//   keys it sees, with dropout; y = P v [N, T, E]. A query that sees no key gives 0.
//   Dropout of P: element index ((n * heads + h) * T + i) * T + j of the stream of Run::key.
// Backward, D = sum of dy y per row and head: dP = dy vᵀ (with dropout), dS = P (dP - D),
//   dq = dS k / sqrt(width), dk = dSᵀ q / sqrt(width), dv = Pᵀ dy: sums over blocks of queries in
//   rising order.
#pragma once

#include "models/ops/operation.h"

namespace pushpull::ops {

struct AttentionShape {
  int64_t samples = 0;    // N
  int64_t positions = 0;  // T
  int64_t heads = 0;
  int64_t width = 0;  // of a head
  bool causal = false;
  bool packed = false;
  bool mask = false;
  float dropout = 0.0F;
};

class AttentionSpec final : public Spec {
 public:
  static constexpr const char* kName = "attention";

  explicit AttentionSpec(const AttentionShape& shape) : shape_(shape) {}
  const AttentionShape& shape() const { return shape_; }

  const char* name() const override { return kName; }
  void check(const std::string& node, std::span<const ValueType> in) const override {
    const int64_t width = shape_.heads * shape_.width;
    require_size(node, "input", shape_.samples * shape_.positions, 3 * width);
    require(shape_.dropout >= 0.0F && shape_.dropout < 1.0F, node,
            "needs an attention-dropout from 0 to below 1");
    const size_t values = shape_.packed ? 1 : 3;
    require(in.size() == values + (shape_.mask ? 1 : 0), node, "has a wrong number of inputs");
    const ValueType value =
        activation({shape_.samples, shape_.positions, shape_.packed ? 3 * width : width});
    for (size_t i = 0; i < values; ++i) require_input(node, in[i], value);
    if (shape_.mask) {
      require_input(node, in.back(),
                    {Element::kInt, Layout::kPlain, {shape_.samples, shape_.positions}});
    }
  }
  ValueType output() const override {
    return activation({shape_.samples, shape_.positions, shape_.heads * shape_.width});
  }
  bool is_random() const override { return shape_.dropout > 0.0F; }
  int64_t flops() const override {
    const int64_t scores = shape_.samples * shape_.heads * shape_.positions * shape_.positions;
    return (shape_.causal ? 7 : 14) * scores * shape_.width;
  }

 private:
  AttentionShape shape_;
};

}  // namespace pushpull::ops

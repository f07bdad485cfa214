// Rows of a table by their ids, as torch.nn.Embedding.
//   ids [N, T] ints, 0 <= id < V; w [V, E]; y[n, t] = w[ids[n, t]], [N, T, E].
// Backward: dw[v] = sum of dy[n, t] over the places of v in rising order (a stable sort of the ids),
// 0 where v is absent; may be added to what is in dw, place after place (tied weights). A GPU sums
// pieces of that order and adds their sums. ids have no gradient.
#pragma once

#include "models/ops/operation.h"

namespace pushpull::ops {

struct EmbeddingShape {
  int64_t samples = 0;     // N
  int64_t positions = 0;   // T
  int64_t vocabulary = 0;  // V
  int64_t width = 0;       // E
};

class EmbeddingSpec final : public Spec {
 public:
  static constexpr const char* kName = "embedding";

  explicit EmbeddingSpec(const EmbeddingShape& shape) : shape_(shape) {}
  const EmbeddingShape& shape() const { return shape_; }

  const char* name() const override { return kName; }
  void check(const std::string& node, std::span<const ValueType> in) const override {
    require_size(node, "weight", shape_.vocabulary, shape_.width);
    require_size(node, "output", shape_.samples * shape_.positions, shape_.width);
    require_input(node, in.front(),
                  {Element::kInt, Layout::kPlain, {shape_.samples, shape_.positions}});
  }
  ValueType output() const override {
    return activation({shape_.samples, shape_.positions, shape_.width});
  }
  std::vector<Shape> params() const override { return {{shape_.vocabulary, shape_.width}}; }

 private:
  EmbeddingShape shape_;
};

}  // namespace pushpull::ops

// Operations on the positions of sequences: rows of a table, learned positions, one position of
// each sequence.
#pragma once

#include <utility>

#include "models/ops/operation.h"

namespace pushpull::ops {

// Rows of a table by their ids, as torch.nn.Embedding.
//   ids [N, T] ints, 0 <= id < V; w [V, E]; y[n, t] = w[ids[n, t]], [N, T, E].
// Backward: dw[v] = sum of dy[n, t] over the places of v in rising order (a stable sort of the ids),
// 0 where v is absent; may be added to what is in dw, place after place (tied weights). A GPU sums
// pieces of that order and adds their sums. ids have no gradient.
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

// Adds a learned vector per position: y[n, t] = x[n, t] + w[t].
//   x, y [N, T, E]; w [P, E] with P >= T, of which the first T rows are read.
// Backward: dx = dy; dw[t] = sum of dy[n, t] in rising order of n; 0 for rows from T on.
struct AddPositionsShape {
  int64_t samples = 0;    // N
  int64_t positions = 0;  // T
  int64_t width = 0;      // E
  int64_t limit = 0;      // P
};

class AddPositionsSpec final : public Spec {
 public:
  static constexpr const char* kName = "add positions";

  explicit AddPositionsSpec(const AddPositionsShape& shape) : shape_(shape) {}
  const AddPositionsShape& shape() const { return shape_; }

  const char* name() const override { return kName; }
  void check(const std::string& node, std::span<const ValueType> in) const override {
    require_size(node, "output", shape_.samples * shape_.positions, shape_.width);
    require_size(node, "weight", shape_.limit, shape_.width);
    require(shape_.positions <= shape_.limit, node,
            "has " + std::to_string(shape_.limit) + " positions, fewer than a sample's " +
                std::to_string(shape_.positions));
    require_input(node, in.front(), output());
  }
  ValueType output() const override {
    return activation({shape_.samples, shape_.positions, shape_.width});
  }
  std::vector<Shape> params() const override { return {{shape_.limit, shape_.width}}; }

 private:
  AddPositionsShape shape_;
};

// One slice of a middle dimension.
//   x [A, B, C], y[a, c] = x[a, index, c], A * C elements. Backward: dx is 0 elsewhere.
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

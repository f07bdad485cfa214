// Adds a learned vector per position: y[n, t] = x[n, t] + w[t].
//   x, y [N, T, E]; w [P, E] with P >= T, of which the first T rows are read.
// Backward: dx = dy; dw[t] = sum of dy[n, t] in rising order of n; 0 for rows from T on.
#pragma once

#include "models/ops/operation.h"

namespace pushpull::ops {

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

}  // namespace pushpull::ops

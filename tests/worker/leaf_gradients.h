// Artificial gradients of micro-batches, and their sum along the tree by its definition.
#pragma once

#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/layout/fixed_tree.h"
#include "common/layout/tensor_table.h"
#include "common/net/message.h"

namespace pushpull {

// Returns tensors of several sizes: a slice holds many, and one tensor spans many slices.
inline TensorTable some_table() {
  TensorTable table;
  for (const int64_t size : {700, 3000, 10, 1, 5, 4096, 999}) {
    TensorInfo info;
    info.name = "t" + std::to_string(table.tensors.size());
    info.shape = {size};
    table.add(info);
  }
  return table;
}

inline std::vector<float> leaf(int64_t index, int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = normal(3, RandomStream::kDummyData, static_cast<uint32_t>(index), i);
  }
  return out;
}

inline std::vector<float> recursive_sum(Range node, int64_t n) {
  if (node.size() == 1) return leaf(node.lo, n);
  const int64_t middle = split_point(node);
  std::vector<float> left = recursive_sum({node.lo, middle}, n);
  const std::vector<float> right = recursive_sum({middle, node.hi}, n);
  for (size_t i = 0; i < left.size(); ++i) left[i] = left[i] + right[i];
  return left;
}

// A slice as it was delivered.
struct Given {
  int slice = 0;
  Payload part;
};

}  // namespace pushpull

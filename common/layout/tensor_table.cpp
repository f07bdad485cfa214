#include "common/layout/tensor_table.h"

#include <utility>

namespace pushpull {

void TensorTable::add(TensorInfo info) {
  info.offset = total;
  info.size = 1;
  for (const int64_t d : info.shape) info.size *= d;
  total += info.size;
  tensors.push_back(std::move(info));
}

int64_t TensorTable::trainable() const {
  int64_t elements = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.rule == UpdateRule::kOptimizer) elements += tensor.size;
  }
  return elements;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

}  // namespace pushpull

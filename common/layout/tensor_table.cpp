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

}  // namespace pushpull

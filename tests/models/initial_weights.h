// Weights for tests: follow the init rules, with the tests' own generator.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "common/layout/tensor_table.h"

namespace pushpull {

inline std::vector<float> initial_weights(const TensorTable& table, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> weights;
  for (const TensorInfo& tensor : table.tensors) {
    for (int64_t i = 0; i < tensor.size; ++i) {
      const double unit = static_cast<double>(random() >> 11U) / 9007199254740992.0;  // 0..1
      const bool uniform = tensor.init == InitKind::kUniform;
      weights.push_back(uniform ? static_cast<float>((2.0 * unit - 1.0) * tensor.value)
                                : tensor.value);
    }
  }
  return weights;
}

}  // namespace pushpull

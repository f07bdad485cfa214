// Weights for tests: follow the init rules, with the tests' own generator.
#pragma once

#include <cmath>
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
      switch (tensor.init) {
        case InitKind::kConstant:
          weights.push_back(tensor.value);
          break;
        case InitKind::kUniform:
          weights.push_back(static_cast<float>((2.0 * unit - 1.0) * tensor.value));
          break;
        case InitKind::kNormal:
          const double second = static_cast<double>(random() >> 11U) / 9007199254740992.0;
          weights.push_back(static_cast<float>(std::sqrt(-2.0 * std::log(1.0 - unit)) *
                                               std::cos(6.283185307179586 * second) *
                                               tensor.value));
          break;
      }
    }
  }
  return weights;
}

}  // namespace pushpull

// The update of a training step in plain code, and weights in fewer bits, for tests of twenty steps.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "common/layout/tensor_table.h"

namespace pushpull::test {

// Plain gradient descent, and running averages.
inline void descend(const TensorTable& table, float rate, const std::vector<float>& gradients,
                    std::vector<float>& weights) {
  for (const TensorInfo& info : table.tensors) {
    const bool is_average = info.rule == UpdateRule::kAverage;
    for (int64_t i = info.offset; i < info.offset + info.size; ++i) {
      const auto at = static_cast<size_t>(i);
      const float step =
          is_average ? info.average_momentum * (weights[at] - gradients[at]) : rate * gradients[at];
      weights[at] -= step;
    }
  }
}

// Returns the number rounded to `bits` significant bits.
inline float rounded(float value, int bits) {
  int exponent = 0;
  const float fraction = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
}

}  // namespace pushpull::test

// The words of attention's dropout, eight following elements at once. Pure.
#pragma once

#include <cstdint>

#include "common/base/random.h"
#include "models/ops/number.h"

namespace pushpull::ops::cuda {

// An element counts `factor` times if its word is at least `least`, and otherwise 0 times.
struct DropoutKey {
  const uint64_t* key = nullptr;  // of the run, in the backend's memory; null: every element counts
  uint32_t least = 0;
  float factor = 1.0F;  // 1 / (1 - p)
};

// Computes how often the eight elements from `element` on count.
PP_HOST_DEVICE inline void dropout_factors(const DropoutKey& dropout, uint64_t element,
                                           float (&factors)[8]) {
  if (dropout.key == nullptr) {
    PP_UNROLL
    for (int k = 0; k < 8; ++k) factors[k] = 1.0F;
    return;
  }
  uint32_t words[12] = {};
  const auto skipped = static_cast<int>(element % 4);
  PP_UNROLL
  for (int part = 0; part < 3; ++part) {
    if (part == 2 && skipped == 0) continue;
    const PhiloxBlock block =
        dropout_block(*dropout.key, element / 4 + static_cast<uint64_t>(part));
    PP_UNROLL
    for (int k = 0; k < 4; ++k) words[4 * part + k] = block.of[k];
  }
  PP_UNROLL
  for (int k = 0; k < 8; ++k) {
    // constant indices, so that the words stay in registers
    const uint32_t low = skipped % 2 == 0 ? words[k] : words[k + 1];
    const uint32_t high = skipped % 2 == 0 ? words[k + 2] : words[k + 3];
    factors[k] = (skipped < 2 ? low : high) >= dropout.least ? dropout.factor : 0.0F;
  }
}

}  // namespace pushpull::ops::cuda

// Eight floats that are computed together. A sum over a row is partial sums in a fixed order,
// combined in a fixed tree, so it has the same bits with every instruction set. Wider lanes would
// be slow on AVX2, where g++ 12 splits them in memory. Use the functions inside a function with
// PUSHPULL_SIMD.
#pragma once

#include <cstdint>
#include <cstring>

#include "common/base/simd.h"
#include "models/ops/arithmetic.h"

namespace pushpull::ops::cpu {

constexpr int64_t kLanes = 8;

using Lanes [[gnu::vector_size(32)]] = float;

PUSHPULL_INLINE void load(const float* from, Lanes& to) { std::memcpy(&to, from, sizeof(Lanes)); }
PUSHPULL_INLINE void store(const Lanes& from, float* to) { std::memcpy(to, &from, sizeof(Lanes)); }

// For the end of a row: the lanes from `count` on become 0, or are not written.
PUSHPULL_INLINE void load_some(const float* from, int64_t count, Lanes& to) {
  float all[kLanes] = {};
  for (int64_t k = 0; k < count; ++k) all[k] = from[k];
  load(all, to);
}
PUSHPULL_INLINE void store_some(const Lanes& from, int64_t count, float* to) {
  float all[kLanes];
  store(from, all);
  for (int64_t k = 0; k < count; ++k) to[k] = all[k];
}

// Returns the sum of the lanes, by tree_sum.
PUSHPULL_INLINE double total(const Lanes& lanes) {
  float all[kLanes];
  store(lanes, all);
  double sums[kLanes];
  for (int64_t k = 0; k < kLanes; ++k) sums[k] = static_cast<double>(all[k]);
  tree_sum(sums, kLanes);
  return sums[0];
}

}  // namespace pushpull::ops::cpu

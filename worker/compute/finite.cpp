#include "worker/compute/finite.h"

#include <cstring>

#include "common/base/simd.h"

namespace pushpull {

namespace {

// A float is NaN or infinite if all bits of its exponent are set.
PUSHPULL_SIMD bool none_found(const float* x, int64_t n) {
  uint32_t found = 0;
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, x + i, sizeof bits);
    found |= static_cast<uint32_t>((bits & 0x7f800000U) == 0x7f800000U);
  }
  return found == 0;
}

}  // namespace

bool all_finite(const float* x, int64_t n) { return none_found(x, n); }

}  // namespace pushpull

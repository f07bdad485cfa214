// Tests floats for NaN and infinity. Thread-safe.
#pragma once

#include <cstdint>

namespace pushpull {

// Returns true if none of x[0], ..., x[n - 1] is NaN or infinite.
bool all_finite(const float* x, int64_t n);

}  // namespace pushpull

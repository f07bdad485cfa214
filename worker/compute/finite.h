// Looks for what is no number. Any thread.
#pragma once

#include <cstdint>

namespace pushpull {

// None of x[0], ..., x[n - 1] is NaN or infinite.
bool all_finite(const float* x, int64_t n);

}  // namespace pushpull

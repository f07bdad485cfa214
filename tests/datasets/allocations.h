// Counts the calls of operator new in this test program, on all threads.
#pragma once

#include <cstddef>

namespace pushpull {

size_t allocation_count();
// Returns the largest single allocation since the last reset, in bytes.
size_t largest_allocation();
void reset_largest_allocation();

}  // namespace pushpull

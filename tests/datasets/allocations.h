// Counts what goes through operator new in this test program, on all threads.
#pragma once

#include <cstddef>

namespace pushpull {

size_t allocation_count();
// The largest single allocation since the last reset.
size_t largest_allocation();
void reset_largest_allocation();

}  // namespace pushpull

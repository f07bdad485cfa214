// Checks what a program reports about a chunk of the test data, as the coordinator would, which drops
// wrong sums and waits for right ones.
#pragma once

#include <cstdint>
#include <span>

#include "common/layout/metric.h"

namespace pushpull {

// Throws Error(kUsage) if the sums cannot be those of so many samples. Any loss and error may be: a
// model that has diverged is shown.
void check_sums(std::span<const HeadInfo> heads, int64_t samples, std::span<const HeadSums> sums);

}  // namespace pushpull

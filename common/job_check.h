// Checks of values against each other. Inside of job*.cpp only; any thread.
#pragma once

#include "common/job.h"
#include "common/job_sources.h"

namespace pushpull {

// The combinations that need no data. `given`: where the values came from, for messages.
// Throws Error(kUsage) that names the keys, their values and sources, and values that would work.
void check_combinations(const Job& job, const Settings& given);

}  // namespace pushpull

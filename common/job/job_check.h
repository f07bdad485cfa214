// Checks settings against each other and against the number of workers. Any thread.
#pragma once

#include "common/job/job_sources.h"

namespace pushpull {

struct Job;

// Rejects settings that this number of workers makes impossible. Throws Error(kUsage) that names
// key and value.
void check_job_against_workers(const Job& job, int64_t workers);

// Checks the combinations that need no data. For job*.cpp only.
//   given: where each value came from, for messages.
// Throws Error(kUsage) that names the keys, their values and sources, and values that would work.
void check_combinations(const Job& job, const Settings& given);

}  // namespace pushpull

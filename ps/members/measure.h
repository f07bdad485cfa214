// The measure of an evaluation that a job follows (`stop-when`, `checkpoint-best`). Pure functions;
// any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "common/layout/metric.h"

namespace pushpull {

struct Job;

// Returns the measure of a job that follows its evaluations. Throws Error(kUsage) that names key and
// measures if the model has no such head or metric, or if there is nothing to evaluate.
Measure measure_of(const Job& job, const std::vector<HeadInfo>& heads, int64_t test_samples);

}  // namespace pushpull

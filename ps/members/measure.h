// The measure of an evaluation that a job follows (`stop-when`, `checkpoint-best`). Pure functions;
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/layout/metric.h"

namespace pushpull {

struct Job;

struct Measure {
  size_t head = 0;       // index
  bool is_loss = false;  // else the head's metric
  bool higher_is_better = false;
};

// Returns the measure of a job that follows its evaluations. Throws Error(kUsage) that names key and
// measures if the model has no such head or metric, or if there is nothing to evaluate.
Measure measure_of(const Job& job, const std::vector<HeadInfo>& heads, int64_t test_samples);

}  // namespace pushpull

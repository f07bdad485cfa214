// Checks what a program in C hands over: its model, and the sums of an evaluation.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "client/external_model.h"
#include "client/pushpull.h"
#include "common/job/job.h"
#include "common/layout/metric.h"

namespace pushpull {

// Reads a model that a program in C describes, with a line for each mistake. Pure function; any
// thread.

// Throws Error(kUsage) that names the tensor, the head or the number. A model without heads has no
// test samples.
ExternalSpec read_model(const pp_model& given, const Job& job);

// Checks what a program reports about a chunk of the test data, as the coordinator would, which drops
// wrong sums and waits for right ones.

// Throws Error(kUsage) if the sums cannot be those of so many samples. Any loss and error may be: a
// model that has diverged is shown.
void check_sums(std::span<const HeadInfo> heads, int64_t samples, std::span<const HeadSums> sums);
// Throws Error(kUsage) unless a sum may have this name beside the known ones.
void check_sum_name(const NamedSums& known, const std::string& name);

}  // namespace pushpull

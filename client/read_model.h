// Reads a model that a program in C describes, with a line for each mistake. Pure function; any
// thread.
#pragma once

#include "client/external_model.h"
#include "client/pushpull.h"
#include "common/job/job.h"

namespace pushpull {

// Throws Error(kUsage) that names the tensor, the head or the number. A model without heads has no
// test samples.
ExternalSpec read_model(const pp_model& given, const Job& job);

}  // namespace pushpull

// The keys of the sizes of gpt, bert and other networks. For job_keys.cpp only. Any thread.
#pragma once

#include <vector>

#include "common/job/job_keys.h"

namespace pushpull {

std::vector<JobKey> network_keys();

}  // namespace pushpull

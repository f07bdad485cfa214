// Checks of a job's ports, from the coordinator's to those of each member, and of what its answer says
// about this host. One thread.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "common/keys/keys.h"

namespace pushpull {

// All lines of `pushpull doctor`; a check that needs an earlier one is left out where that failed.
std::vector<Finding> check_job(const std::string& address, const Keys& keys, double timeout_s);

}  // namespace pushpull

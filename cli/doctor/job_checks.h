// Checks the ports of a job, from the coordinator's to each member's, and checks this host against
// the coordinator's answer. One thread.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "common/net/keys.h"

namespace pushpull {

// Returns all findings of `pushpull doctor`. Omits checks that depend on one that failed.
std::vector<Finding> check_job(const std::string& address, const Keys& keys, double timeout_s);

}  // namespace pushpull

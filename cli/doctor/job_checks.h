// Checks the ports of a job, from the coordinator's to each member's, and checks this host against
// the coordinator's answer. One thread.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "common/net/keys.h"

namespace pushpull {

// Checks whether an address can be reached: its name, then its port. One thread.
struct AddressFindings {
  Finding name;
  Finding port;  // an error too if the name cannot be resolved
  bool ok = false;
};

// address: tcp://HOST:PORT. check: appended to the name of each finding, "" or "of server 1".
// way_out: remedy if the port cannot be reached. Waits a few seconds at most.
AddressFindings reach(const std::string& address, const std::string& check,
                      const std::string& way_out);

// Returns all findings of `pushpull doctor`. Omits checks that depend on one that failed.
std::vector<Finding> check_job(const std::string& address, const Keys& keys, double timeout_s);

}  // namespace pushpull

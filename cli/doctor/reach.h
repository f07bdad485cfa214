// Checks whether an address can be reached: its name, then its port. One thread.
#pragma once

#include <string>

#include "cli/doctor/finding.h"

namespace pushpull {

struct AddressFindings {
  Finding name;
  Finding port;  // an error too if the name cannot be resolved
  bool ok = false;
};

// address: tcp://HOST:PORT. check: appended to the name of each finding, "" or "of server 1".
// way_out: remedy if the port cannot be reached. Waits a few seconds at most.
AddressFindings reach(const std::string& address, const std::string& check,
                      const std::string& way_out);

}  // namespace pushpull

// Whether an address can be reached: its name, its port. One thread.
#pragma once

#include <string>

#include "cli/doctor/finding.h"

namespace pushpull {

struct AddressFindings {
  Finding name;
  Finding port;  // says so where the name was wrong already
  bool ok = false;
};

// address: tcp://HOST:PORT. check: what the lines are about, as "" or "of server 1".
// Waits some seconds at most.
AddressFindings reach(const std::string& address, const std::string& check,
                      const std::string& way_out);

}  // namespace pushpull

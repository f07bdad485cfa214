// Finds the first server of a job among ports that may belong to servers of other jobs. For tasks with a
// launcher that names a host and a derived port. Connects, so that it blocks. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/launch/placement.h"
#include "common/net/keys.h"

namespace pushpull {

struct JobSearch {
  std::string host;
  int64_t first_port = 0;
  int64_t ports = 1;
  std::string job_token;
  double timeout_s = 60.0;
};

struct SearchListener {
  std::function<void(const std::string&)> say;  // a line for waiting users
  std::function<bool()> stop;                   // true: give up
};

// Asks each port in turn, and again until the server of this job answers. Returns its address, or
// nothing once `stop` says so. A port that belongs to another job, by its token or its key, is passed
// over. Throws Error(kUnreachable) naming the ports and what was found there, after the timeout.
std::optional<std::string> find_job(const JobSearch& search, const Keys& keys,
                                    const SearchListener& listener);

// Returns the address of the first server of a placed task: found by find_job if its port is derived,
// else the one that the placement names.
std::optional<std::string> address_of_job(const Placement& placement, const Keys& keys,
                                          double timeout_s, const SearchListener& listener);

}  // namespace pushpull

// The way to one server's data port: latency, rate each way, memory that can be shared. Costs the
// server a few MiB at most. One thread.
#pragma once

#include <string>
#include <vector>
#include <zmq.hpp>

#include "cli/doctor/finding.h"
#include "common/keys/credentials.h"

namespace pushpull {

struct ServerWay {
  double latency_ms = 0.0;        // of a small message there and back, the median
  double there_per_second = 0.0;  // bytes
  double back_per_second = 0.0;
  std::string memory;  // why its memory cannot be shared; "": it can
  bool here = false;   // it is on this host
};

// Turns a measurement into findings for people. who: "server 1".
std::vector<Finding> findings_of(const std::string& who, const std::string& address,
                                 const ServerWay& way);

// Measures for some seconds at most. Findings of a server that does not answer say so.
std::vector<Finding> check_server(zmq::context_t& context, const std::string& who,
                                  const std::string& address, const Credentials& credentials);

}  // namespace pushpull

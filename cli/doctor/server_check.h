// Measures the path to one server's data port: latency, rate in each direction, and whether its
// memory can be shared. Transfers a few MiB at most. One thread.
#pragma once

#include <string>
#include <vector>
#include <zmq.hpp>

#include "cli/doctor/finding.h"
#include "common/net/credentials.h"

namespace pushpull {

struct ServerWay {
  double latency_ms = 0.0;        // median round trip of a small message
  double there_per_second = 0.0;  // bytes, to the server
  double back_per_second = 0.0;
  std::string memory;  // why its memory cannot be shared; "" = it can
  bool here = false;   // the server is on this host
};

// Turns a measurement into findings named after the server, such as "server 1".
std::vector<Finding> findings_of(const std::string& who, const std::string& address,
                                 const ServerWay& way);

// Measures for a few seconds. If the server does not answer for 3 s, returns that as an error.
std::vector<Finding> check_server(zmq::context_t& context, const std::string& who,
                                  const std::string& address, const Credentials& credentials);

}  // namespace pushpull

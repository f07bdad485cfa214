// The handshake of a process that joins a job: repeats Hello until the coordinator answers. Blocks;
// call it on the thread that owns `control`.
#pragma once

#include <functional>
#include <string>

#include "common/base/log.h"
#include "common/net/endpoint.h"

namespace pushpull {

struct JoinOptions {
  wire::Role role = wire::ROLE_UNSET;
  uint64_t incarnation = 0;
  std::string data_endpoint;  // where it listens; servers only
  double timeout_s = 60.0;    // --join-timeout
};

// Sends Hello every half second and logs what it waits for. Returns the job.
//   stop: polled; true ends the wait with Error(kFailed).
// Throws Error(kUnreachable) naming the address after the timeout, Error with the coordinator's
//  code if refused, Error(kProtocol) naming both versions if the coordinator speaks another
//  protocol.
wire::JobText join(Dealer& control, const JoinOptions& options, const Log& log,
                   const std::function<bool()>& stop);

// The programs' version, as --version prints it.
std::string program_version();

}  // namespace pushpull

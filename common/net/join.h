// The first words of a process that joins a job: hello until the coordinator answers. Blocking; the
// thread that owns `control`.
#pragma once

#include <functional>
#include <string>

#include "common/base/log.h"
#include "common/net/endpoint.h"

namespace pushpull {

struct JoinOptions {
  wire::Role role = wire::ROLE_UNSET;
  uint64_t incarnation = 0;
  std::string data_endpoint;  // servers
  double timeout_s = 60.0;    // --join-timeout
};

// Says hello every half second and tells what it waits for. Returns the job.
// `stop` is asked often; true ends the wait with Error(kFailed).
// Throws Error(kUnreachable) naming the address after the timeout, Error(code of the coordinator)
// when refused, Error(kProtocol) naming both versions when the coordinator speaks another protocol.
wire::JobText join(Dealer& control, const JoinOptions& options, const Log& log,
                   const std::function<bool()>& stop);

// Version of the programs, as --version prints it.
std::string program_version();

}  // namespace pushpull

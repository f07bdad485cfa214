// The program of every server but the first, around `ServerMember`: owns the sockets and the clock.
#pragma once

#include <memory>
#include <string>

#include "common/base/process.h"
#include "common/device/device.h"
#include "common/keys/keys.h"

namespace pushpull {

struct JoinedServerProgram {
  std::string join;    // tcp://HOST:PORT of the coordinator
  std::string listen;  // empty: a free port of the interface that reaches the coordinator
  std::string advertise;
  double join_timeout_s = 60.0;
  Keys keys;
  std::shared_ptr<device::Device> device = nullptr;  // where weights are to lie; null: the host
};

// Runs until the job is over; returns the exit code. Throws Error where it cannot join.
int run_joined_server(const JoinedServerProgram& program, SignalFd& signals);

}  // namespace pushpull

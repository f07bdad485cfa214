// The program of every server except the first one: owns sockets and clock of a ServerMember.
#pragma once

#include <memory>
#include <string>

#include "common/base/process.h"
#include "common/device/device.h"
#include "common/net/keys.h"

namespace pushpull {

struct JoinedServerProgram {
  std::string join;    // tcp://HOST:PORT of the coordinator
  std::string listen;  // empty for a free port of the interface that reaches the coordinator
  std::string data_port = "*";  // where `listen` names none: a port, a range of them, or *
  std::string advertise;
  std::string job_token;  // of the job that it means to join, or ""
  double join_timeout_s = 60.0;
  Keys keys;
  std::shared_ptr<device::Device> device = nullptr;  // memory of the weights; null for host memory
};

// Runs until the job is over. Returns the exit code. Throws Error if it cannot join.
int run_joined_server(const JoinedServerProgram& program, SignalFd& signals);

}  // namespace pushpull

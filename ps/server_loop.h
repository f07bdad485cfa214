// The programs around the state machines of a server: they own sockets, threads, files and the
// clock. Each call runs until the job is over and returns the exit code.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/process.h"
#include "common/device/device.h"
#include "common/job/job.h"
#include "ps/coordinator/report.h"

namespace pushpull {

struct CoordinatorProgram {
  Job job;
  int servers = 1;
  int workers = 1;
  std::string listen;     // tcp://HOST:PORT
  std::string advertise;  // host that others reach this one by; empty: that of `listen`
  std::string out_dir;
  ProgressStyle style = ProgressStyle::kPlain;
  double join_timeout_s = 600.0;  // for all members to come
  int announce_fd = -1;           // gets lines: the address that was picked; who failed
  std::shared_ptr<device::Device> device = nullptr;  // where weights are to lie; null: the host
};

struct JoinedServerProgram {
  std::string join;    // tcp://HOST:PORT of the coordinator
  std::string listen;  // empty: a free port of the interface that reaches the coordinator
  std::string advertise;
  double join_timeout_s = 60.0;
  bool insecure = false;
  std::shared_ptr<device::Device> device = nullptr;  // as above
};

int run_coordinator(const CoordinatorProgram& program, SignalFd& signals);
int run_joined_server(const JoinedServerProgram& program, SignalFd& signals);

}  // namespace pushpull

// The first server's program, around `JobDriver`: owns sockets, threads, files, the clock and
// signals.
#pragma once

#include <memory>
#include <string>

#include "common/base/process.h"
#include "common/device/device.h"
#include "common/job/job.h"
#include "common/keys/keys.h"
#include "ps/files/report.h"

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
  int announce_fd = -1;  // gets lines: the address that was picked; that it started; who failed
  Keys keys;             // who may take part
  std::shared_ptr<device::Device> device = nullptr;  // where weights are to lie; null: the host
};

// Runs until the job is over; returns the exit code. Throws Error for what keeps it from starting.
int run_coordinator(const CoordinatorProgram& program, SignalFd& signals);

}  // namespace pushpull

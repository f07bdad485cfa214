// The program of the first server, around `JobDriver`: owns sockets, threads, files, the clock and
// signals.
#pragma once

#include <memory>
#include <string>

#include "common/base/process.h"
#include "common/device/device.h"
#include "common/job/job.h"
#include "common/net/keys.h"
#include "ps/report/report.h"
#include "ps/report/watch_page.h"
#include "ps/run/stop_options.h"

namespace pushpull {

struct CoordinatorProgram {
  Job job;
  int servers = 1;
  int workers = 1;
  std::string listen;           // tcp://HOST:PORT
  int64_t listen_ports = 1;     // to try in turn, from that of `listen` on
  std::string data_port = "*";  // port for data, or a range of them
  std::string job_token;        // of the job, as its members say it; "": any (common/launch)
  std::string advertise;  // host in the address for other processes; default: the host of `listen`
  std::string out_dir;
  ProgressStyle style = ProgressStyle::kPlain;
  WatchOptions watch;
  StopOptions stops;
  double join_timeout_s = 600.0;  // limit for all members to join
  int announce_fd = -1;  // receives lines: the chosen address, the start, a failure; -1 for none
  Keys keys;             // decide which processes may join
  std::shared_ptr<device::Device> device = nullptr;  // holds the weights; null for the host
};

// Runs until the job is over and returns the exit code. Throws Error if it cannot start.
int run_coordinator(const CoordinatorProgram& program, SignalFd& signals);

}  // namespace pushpull

// Runs a whole job on this machine: starts the real programs, shows their output as one, forwards
// signals, and leaves no process behind. One thread, one poll loop; what is decided and what is
// shown is in supervisor.h and merged_view.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/run/supervisor.h"

namespace pushpull {

// Where and how one process runs, where that is not as usual.
struct Place {
  std::vector<std::string> prefix;     // a command that runs the rest: ip netns exec ...
  std::vector<std::string> arguments;  // of the program, behind its others
};

struct LauncherOptions {
  SupervisorOptions supervisor;
  std::string server_program;
  std::string worker_program;
  std::vector<std::string> server_devices;         // --device of each server; empty: none
  std::vector<std::string> worker_devices;         // the same of each worker
  std::string trace_dir;                           // of the workers' traces; "": none
  std::vector<std::string> coordinator_arguments;  // without --announce-fd
  std::vector<Place> places;                       // by slot; empty, or one for each process
  int64_t announce_timeout_ms = 60000;             // until the coordinator listens
  int out_fd = 1;
  int err_fd = 2;
  int* stopped_by = nullptr;  // where given: set to a signal that came for the job, even at its end
};

// Returns the job's exit code: 0, that of the process that broke it, or 128 + signal. Blocks
// SIGCHLD and the signals that end or stop a program while it runs. Throws Error(kFailed) where the
// coordinator cannot be started.
int launch(const LauncherOptions& options);

}  // namespace pushpull

// Runs a whole job on this machine: starts the real programs, merges their output, forwards
// signals, and leaves no process behind. One thread, one poll loop. supervisor.h makes the
// decisions, merged_view.h selects the output.
#pragma once

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/run/child.h"
#include "cli/run/supervisor.h"
#include "common/host/binding.h"

namespace pushpull {

// Overrides for how one process is started.
struct Place {
  std::vector<std::string> prefix;     // command in front of the program: ip netns exec ...
  std::vector<std::string> arguments;  // appended to the program's own
};

inline constexpr const char* kJobFromWorker = "--job-from-worker";

// A further job whose workers are those of this one: `pushpull run --servers-only` runs its servers.
struct OtherJob {
  std::string name;
  std::vector<std::string> words;  // without --announce-fd
};

struct LauncherOptions {
  SupervisorOptions supervisor;  // workers = 0: only servers are started
  std::string server_program;
  std::string worker_program;
  std::vector<std::string> worker_command;  // of --worker; empty = worker_program
  std::vector<std::string> server_devices;  // --device of each server; empty = none given
  std::vector<std::string> worker_devices;  // --device of each worker; empty = none given
  std::vector<HostShare> shares;            // by slot; empty, or one per process
  std::vector<std::string> notes;           // about the cores, for users; one line each
  std::string data_port = "*";              // --data-port of all processes
  std::string trace_dir;                    // folder for the workers' traces; "" = none
  std::string out_dir;                      // of the run
  // Without --announce-fd. kJobFromWorker among them: the workers' programs say the job.
  std::vector<std::string> coordinator_arguments;
  std::string job_token;     // of the run: its servers refuse processes of other runs; "": none
  bool insecure = false;     // --insecure for all processes
  std::optional<Step> step;  // starts the workers and further servers on other hosts
  std::string name;          // of the job, among others; "" if there are none
  std::vector<OtherJob> others;
  // Names and addresses of all jobs, once they are known.
  std::vector<std::pair<std::string, std::string>> addresses;
  int announce_fd = -1;                 // gets the coordinator's address in a line; -1: none
  std::vector<Place> places;            // by slot; empty, or one per process
  int64_t announce_timeout_ms = 60000;  // until the coordinator must listen
  int out_fd = 1;
  int err_fd = 2;
  int checkpoint_signal = SIGUSR1;  // passed to the coordinator; 0 for none
  int* stopped_by = nullptr;  // if not null, receives a signal that arrives, even at the job's end
};

// Runs the job and returns its exit code: 0, that of the process that failed it, or 128 + signal.
// While it runs, SIGCHLD and the signals that end or stop a program are blocked. Throws
// Error(kFailed) if the coordinator cannot be started.
int launch(const LauncherOptions& options);

}  // namespace pushpull

// The place of this task in a job, for `--join auto`: its role, its rank, and the address of the first
// server, each with its source. No I/O. Any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/launch/claim.h"

namespace pushpull {

// Flags of the program. They override all variables.
struct LaunchFlags {
  bool server = false;                  // the program is pushpull-server, else a worker
  std::string join = "auto";            // or the address, tcp://HOST:PORT
  std::optional<int64_t> servers = {};  // --servers
  std::optional<int64_t> workers = {};  // --workers
};

struct Placement {
  TaskRole role = TaskRole::kWorker;
  std::string launcher;  // the source that places this task: "torchrun"
  std::string role_from;
  std::optional<Found<int64_t>> rank;  // among the launcher's tasks; the job deals out its own
  std::optional<Found<int64_t>> size;
  std::optional<Found<int64_t>> local_rank;
  Found<int64_t> servers;
  std::optional<Found<int64_t>> workers;  // absent: no source says
  Found<std::string> host;                // of the first server
  Found<int64_t> port;
  bool host_is_ipv6 = false;  // its name has no address of IPv4
  int64_t ports = 1;          // that its server tries, from `port` on: a derived port may be taken
  std::string
      job_token;  // of the job, by which its members know its server; "": no source names it
  std::vector<std::string> unused;  // sources that have set variables and were not needed

  std::string address() const;  // tcp://HOST:PORT
  // Returns where the first server listens: on 127.0.0.1 if the host is this one, else everywhere.
  std::string listen() const;
};

// Decides which claims count: the first complete one places this task, and a value that it lacks comes
// from the first claim that has it.
// Throws Error(kUsage) naming the variable that is missing, or the two that contradict each other.
Placement place_task(const LaunchFlags& flags, const std::vector<Claim>& claims);

// Places this process by its environment and its host. Any thread.
Environment environment_of_this_process();

// Returns PUSHPULL_JOB_TOKEN, or "": the token of the job that this process means to join or to start.
std::string job_token_of_this_process();

// Calls place_task for this process. In a pod it asks the resolver for the host's full name, which is
// in the pod's /etc/hosts. Throws as place_task does.
Placement place_this_process(const LaunchFlags& flags);

// A placement as text for users. Any thread.

// Returns the lines of --explain: each value with its source.
std::string explain(const Placement& placement);

// Returns the most important of it in one line, for the log.
std::string summary_line(const Placement& placement);

}  // namespace pushpull

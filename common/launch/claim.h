// The claims of launchers: each reads one launcher's variables from an environment and returns what
// they say about this task, or nothing if they are absent. No I/O. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pushpull {

using Environment = std::map<std::string, std::string>;  // variable -> value

enum class TaskRole {
  kWorker,
  kFirstServer,  // coordinates the job
  kServer,       // joins it as a further server
  kNone,         // of pushpull-server: the job has fewer servers than tasks, and none in this task
};

// A value and the variable, or the variables, that it comes from.
template <class T>
struct Found {
  T value{};
  std::string from;
};

struct Claim {
  std::string source;  // name of the launcher: "torchrun"
  std::optional<Found<int64_t>> rank = {};
  std::optional<Found<int64_t>> size = {};  // tasks of the launcher
  std::optional<Found<int64_t>> local_rank = {};
  std::optional<Found<TaskRole>> role = {};  // only of launchers that know roles
  std::optional<Found<int64_t>> servers = {};
  std::optional<Found<int64_t>> workers = {};
  std::optional<Found<std::string>> host = {};  // of the first server
  std::optional<Found<int64_t>> port = {};
  // Variables without which the place of this task is unknown, and why; "": the claim is complete.
  std::string missing = {};
  std::string job = {};  // names the launcher's job, the same in all its tasks: "Slurm step 77.0"
  std::string no_host = {};  // how to name a host, if this launcher names none
  bool own_ranks = false;    // the launcher itself has set these ranks, not a script
};

// Returns the claims in the order in which they count: PUSHPULL_*, torchrun, Kubeflow, Open MPI, PMI,
// Slurm, Kubernetes, TF_CONFIG, ps-lite.
//   host_name: full name of this host; only Kubernetes needs it.
// Throws Error(kUsage) naming the variable for a value that has no meaning.
std::vector<Claim> read_claims(const Environment& environment, const std::string& host_name);

// Port of the first server under torchrun: MASTER_PORT plus this number, or minus it above 65535.
// torchrun's own store may listen on MASTER_PORT.
inline constexpr int64_t kMasterPortOffset = 55;
// Ports that are derived from the number of a launcher's job: the range is below the kernel's range
// for outgoing connections.
inline constexpr int64_t kFirstJobPort = 20000;
inline constexpr int64_t kJobPorts = 10000;

}  // namespace pushpull

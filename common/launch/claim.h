// The claims of launchers: each reads one launcher's variables from an environment and returns what
// they say about this task, or nothing if they are absent; and how variables are read. No I/O. Any
// thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/net/address.h"

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

// Reads single variables of an environment for claims. A variable that is empty counts as absent.
// No I/O. Any thread.

// Returns the first of the variables that is set.
std::optional<Found<std::string>> text_of(const Environment& environment,
                                          std::initializer_list<const char*> variables);
// The same for a whole number >= 0. Throws Error(kUsage) naming the variable for other text.
std::optional<Found<int64_t>> number_of(const Environment& environment,
                                        std::initializer_list<const char*> variables);
// The same for a port, 1 to 65535.
std::optional<Found<int64_t>> port_of(const Environment& environment,
                                      std::initializer_list<const char*> variables);
// The same for the name or address of a host; IPv6 may have brackets.
std::optional<Found<std::string>> host_of(const Environment& environment,
                                          std::initializer_list<const char*> variables);

// Returns `host` without brackets. Throws Error(kUsage) naming `variable` if it is no host.
std::string checked_host(const std::string& host, const std::string& variable);

// Parses tcp://HOST:PORT. Throws Error(kUsage) with the text `why` if it is none.
Address address_or_refuse(const std::string& text, const std::string& why);

// Throws Error(kUsage) with the tag of all errors here.
[[noreturn]] void refuse_launch(const std::string& text);

}  // namespace pushpull

// How each process of a job is started: its command line and its environment. Any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pushpull {

struct LauncherOptions;

struct StartPlan {
  std::vector<std::string> words;  // the first one is found as execvp(3) does
  // Variables that the process gets beside the launcher's own, or instead. Without a value: removed.
  std::vector<std::pair<std::string, std::optional<std::string>>> environment = {};
  // CPUs that the process and its children are bound to; empty: those of the launcher.
  std::vector<int> cpus = {};
  // Gets SIGTERM when the launcher dies. Not a user's program, which SIGTERM would kill: it ends with
  // the job, which the servers stop.
  bool ends_with_launcher = true;
};

// Returns the plan of the process in `slot`: servers, then workers.
//   address: of the coordinator, which is slot 0 and has none yet.
StartPlan plan_start(const LauncherOptions& options, size_t slot, const std::string& address);

}  // namespace pushpull

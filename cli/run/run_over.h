// `pushpull run --over`: the coordinator runs here, and one srun or mpirun starts the workers and the
// further servers on the nodes of the allocation. Main thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/run/launcher.h"
#include "common/job/command_line.h"
#include "common/job/job.h"

namespace pushpull {

// The address of this host that other nodes of a job can reach. Any thread.

// Returns the local IP address on the route to the first of `nodes` that has one and is another host;
// if there is none, that of the default route, else of the first interface that is up, else 127.0.0.1.
// Sends nothing, but asks the resolver for the names.
std::string reachable_host(const std::vector<std::string>& nodes);

struct Over {
  std::shared_ptr<const StepLauncher> launcher;
  int64_t workers = 1;  // tasks of the allocation, if --workers is not given
  std::string listen;   // of the coordinator, where other nodes reach it
};

// Returns what --over asks for, or nothing. Throws Error(kUsage) if the launcher cannot start anything
// here, if flags contradict it, or if nothing tells the number of workers.
std::optional<Over> over_of(const CommandLine& line);

// Turns options for local processes into those of a coordinator and a step.
//   line, job: the same from which `options` were made.
void start_over(const Over& over, const CommandLine& line, const Job& job,
                const std::string& program_dir, LauncherOptions& options);

}  // namespace pushpull

// `pushpull run --over`: the coordinator runs here, and one srun or mpirun starts the workers and the
// further servers on the nodes of the allocation. Main thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/run/launcher.h"
#include "common/job/command_line.h"
#include "common/job/job.h"

namespace pushpull {

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

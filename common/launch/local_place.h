// The place of this task among the tasks of its host, from the launcher's variables, whether or not they name the job's
// address, too. No I/O, apart from the function that reads this process. Any thread.
#pragma once

#include <optional>
#include <string>

#include "common/host/task_on_host.h"
#include "common/launch/claim.h"

namespace pushpull {

struct LocalPlace {
  Found<int64_t> rank;                      // among the launcher's tasks on this host
  std::optional<Found<int64_t>> size = {};  // number of these tasks

  TaskOnHost task() const { return {rank.value, size ? size->value : 0}; }
};

// Returns the place that the first launcher names, in the order of read_claims: PUSHPULL_LOCAL_RANK, torchrun, Open MPI,
// PMI, Slurm step. Returns nullopt if none does.
// Throws Error(kUsage) naming the variable for a value that has no meaning.
std::optional<LocalPlace> local_place(const Environment& environment);

// The same for the environment of this process.
std::optional<LocalPlace> local_place_of_this_process();

// Returns the task that this process is, or one that was started alone if no variable says. Throws as local_place does.
TaskOnHost task_of_this_process();

}  // namespace pushpull

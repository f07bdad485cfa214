// The place of this task among the tasks of its host, from the launcher's variables, whether or not they name the job's
// address, too. No I/O, apart from the function that reads this process. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/host/binding.h"
#include "common/host/cores.h"
#include "common/launch/claim.h"

namespace pushpull {

// Gives this process its part of the host, by its local rank: cores (--bind) and a GPU (`--device auto`). Call from
// main, before any thread starts that computes.

// Binds this process, and tells own_cores() how many processes have the same cores.
//   most: largest number of processes of this kind on a host, if that may be less than its tasks; else 0.
//   say: receives a line about the cores that this process is bound to.
// Throws Error(kUsage) if `bind` needs a local rank and a local size, and no variable says.
void take_cores(Bind bind, int64_t most, const std::function<void(const std::string&)>& say);

// Returns a line if the workers of this host together have more compute threads than cores, or "". Only one worker of a
// host returns it, and none that `pushpull run` has started, which says it itself.
//   threads: of each worker.
std::string crowding_text(int64_t threads, bool allowed);

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

// Gives this process its part of the host, by its local rank: cores (--bind) and a GPU (`--device auto`). Call from
// main, before any thread starts that computes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/host/binding.h"

namespace pushpull {

// Binds this process, and tells own_cores() how many processes have the same cores.
//   most: largest number of processes of this kind on a host, if that may be less than its tasks; else 0.
//   say: receives a line about the cores that this process is bound to.
// Throws Error(kUsage) if `bind` needs a local rank and a local size, and no variable says.
void take_cores(Bind bind, int64_t most, const std::function<void(const std::string&)>& say);

// Returns a line if the workers of this host together have more compute threads than cores, or "". Only one worker of a
// host returns it, and none that `pushpull run` has started, which says it itself.
//   threads: of each worker.
std::string crowding_text(int64_t threads);

}  // namespace pushpull

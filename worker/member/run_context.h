// The run that a part of a worker belongs to. Borrowed values; whoever makes one keeps them alive
// while it is used.
#pragma once

#include <cstdint>

#include "common/job/job.h"
#include "common/net/message.h"

namespace pushpull {

struct RunContext {
  const Job& job;
  uint64_t run = 0;          // which run of the job
  uint64_t incarnation = 0;  // of this worker
  const wire::State& state;  // as training began
};

}  // namespace pushpull

// How a process takes part in a job, as one value. Borrowed: nothing in it outlives the call that
// it is passed to.
#pragma once

#include <cstdint>

#include "common/job/job.h"
#include "common/net/message.h"

namespace pushpull {

struct JobView {
  const Job& job;
  uint64_t run = 0;          // of the job: strangers do not know it
  uint64_t incarnation = 0;  // of this process
  const wire::State& state;  // the newest one, of a job that trains
};

}  // namespace pushpull

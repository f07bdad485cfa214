// A process's membership in a job, as one value. Borrowed: its references do not outlive the call
// that it is passed to.
#pragma once

#include <cstdint>

#include "common/net/message.h"

namespace pushpull {

struct Job;

struct JobView {
  const Job& job;
  uint64_t run = 0;          // of the job; unknown to strangers
  uint64_t incarnation = 0;  // of this process
  const wire::State& state;  // the newest state of the job
};

}  // namespace pushpull

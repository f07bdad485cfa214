// The update of a server by one push of async or ssp; docs/strategies.md has the formulas. Server
// and replay share it, so that both compute the same bits. Any thread.
#pragma once

#include <cstdint>

#include "common/layout/fixed_tree.h"

namespace pushpull {

struct Job;
struct UpdateInfo;

struct AsyncPush {
  int64_t step = 0;
  Range range;            // micro-batches in its sum
  double squares = 0.0;   // squared norm of its mean gradient over all servers; for clip-norm
  int64_t staleness = 0;  // updates of this server since the version that the push read
};

//   total_steps: the schedule's horizon.
UpdateInfo async_update(const Job& job, int64_t total_steps, const AsyncPush& push);

}  // namespace pushpull

// The numbers that PushPull needs of a job that trains. Plain value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/buffer_pool.h"
#include "common/job/barriers.h"
#include "common/job/job.h"

namespace pushpull {

struct PushPullSetup {
  uint64_t run = 0;
  uint64_t incarnation = 0;
  Job job;
  int64_t total_elements = 0;  // of the flat vector
  int servers = 1;
  Barriers barriers;
  int shares = 1;                        // that a step, and an evaluation, is cut into
  int64_t chunks = 0;                    // of an evaluation
  size_t flush_bytes = size_t{1} << 20;  // a push's message goes out when it holds so much
  // Weights on their way on each connection, at most; 0: no limit. It is several times what a
  // loopback connection holds in its socket buffers. Over a slow link there are fewer.
  int64_t window_bytes = int64_t{8} << 20;
  FloatAllocator memory = heap_floats;  // where weights come in that do not stay with a server
  // Weights that stay with several servers are mapped side by side, not copied to `memory`.
  bool side_by_side = true;
  // The next pull begins when `next` is asked for it, not with the push, which the servers
  // acknowledge.
  bool acknowledge = false;
};

}  // namespace pushpull

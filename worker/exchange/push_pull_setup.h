// The setup of PushPull for one run. Plain value.
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
  int shares = 1;                        // of a step and of an evaluation
  int64_t chunks = 0;                    // of an evaluation
  size_t flush_bytes = size_t{1} << 20;  // size at which a push's message is sent
  // Most bytes of weights in flight on each connection; 0 = no limit. The default is several times
  // the socket buffers of a loopback connection. PullWindows lowers it over a slow link.
  int64_t window_bytes = int64_t{8} << 20;
  FloatAllocator memory = heap_floats;  // for weights that are copied from servers
  // Shared weights of several servers are mapped side by side, not copied to `memory`.
  bool side_by_side = true;
  // Servers acknowledge each push, and the next pull starts with the next call of `next`. Otherwise
  // it rides on the push.
  bool acknowledge = false;
};

}  // namespace pushpull

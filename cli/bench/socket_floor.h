// The least that an exchange through sockets takes without any library: processes that push and
// pull whole tensors through blocking sockets with tuned buffers, against one thread for each
// connection. The calling process must have no other thread, since it forks.
#pragma once

#include <cstdint>

#include "cli/bench/bench_result.h"
#include "common/job/job.h"

namespace pushpull {

struct SocketFloor {
  double exchange_us = 0.0;  // median of a client's push and pull, all clients at once
  OneWay way;                // of one of them
};

// transport: kTcp (over loopback) or kIpc. Throws Error(kFailed) where a socket or a client fails.
SocketFloor socket_floor(Transport transport, int64_t bytes, int64_t clients);

}  // namespace pushpull

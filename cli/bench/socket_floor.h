// The minimum time of an exchange through sockets without any library: client processes push and
// pull whole tensors through blocking sockets with tuned buffers; the server has one thread per
// connection. The calling process must be single-threaded, since it forks.
#pragma once

#include <cstdint>

#include "cli/bench/bench_result.h"
#include "common/job/job.h"

namespace pushpull {

struct SocketFloor {
  double exchange_us = 0.0;  // median of a client's push and pull; all clients run at once
  OneWay way;                // of one of the clients
};

//   transport: kTcp (over loopback) or kIpc.
// Throws Error(kFailed) if a socket or a client fails.
SocketFloor socket_floor(Transport transport, int64_t bytes, int64_t clients);

}  // namespace pushpull

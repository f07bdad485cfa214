// One connection through the proxy: its two sockets, and the bytes in flight in each direction.
// Plain data; used by the proxy's thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "cli/link/byte_queue.h"
#include "cli/link/link_model.h"
#include "common/base/unique_fd.h"

namespace pushpull {

struct Side {
  UniqueFd fd;
  bool readable = false;  // until a read returns EAGAIN: events report only changes (EPOLLET)
  bool writable = false;
  bool read_all = false;  // its end of stream was read
  bool broken = false;    // by a socket error
};

enum class End { kFin, kReset };

// All bytes in flight from one side to the other.
struct Flow {
  explicit Flow(BlockPool& pool) : bytes(pool) {}
  ByteQueue bytes;
  DelayLine line;
  std::optional<End> end;  // follows the bytes
  int64_t end_due_us = 0;
  bool finished = false;  // the end was passed on
  int64_t timer_us = -1;  // the earliest timer that is set; -1 = none
};

struct Connection {
  Connection(uint64_t number, BlockPool& pool) : id(number), flows{Flow(pool), Flow(pool)} {}
  uint64_t id;
  std::array<Side, 2> sides;  // the connecting side, the listening side
  std::array<Flow, 2> flows;  // up: from sides[0]; down: from sides[1]
  bool connecting = true;
  int64_t connect_by_us = 0;
  bool listed = false;  // in active_
};

}  // namespace pushpull

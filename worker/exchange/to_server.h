// A message from a worker to a server. Plain values.
#pragma once

#include <cstdint>

#include "common/net/message.h"

namespace pushpull {

struct ToServer {
  int server = 0;
  Message message;
  int connection = 0;  // index among those to the server
};

// The sender that every message of a worker names.
struct SenderId {
  uint64_t run = 0;
  uint64_t incarnation = 0;

  void put(wire::Sender* sender) const {
    sender->set_run(run);
    sender->set_incarnation(incarnation);
  }
};

}  // namespace pushpull

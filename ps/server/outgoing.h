// Messages that a server wants to have sent. Plain data.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/net/message.h"

namespace pushpull {

struct Outgoing {
  PeerId to;
  Message message;
};

using Outbox = std::vector<Outgoing>;

// A Status without weights. pull: its number, 0: of none. Returns it to be completed; valid until
// the next message.
inline wire::Status& add_status(Outbox& outbox, const PeerId& to, int64_t pull,
                                int64_t pushes_through) {
  Message message;
  wire::Status* status = message.header.mutable_status();
  status->set_pull(pull);
  status->set_pushes_through(pushes_through);
  outbox.push_back({to, std::move(message)});
  return *outbox.back().message.header.mutable_status();
}

// The request cannot be met yet: ask again.
inline void add_not_ready(Outbox& outbox, const PeerId& to, int64_t pull = 0) {
  add_status(outbox, to, pull, 0).set_not_ready(true);
}

}  // namespace pushpull

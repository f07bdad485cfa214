// Outgoing messages of a server, and those that it dropped late. Plain data.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/net/message.h"
#include "common/net/refusals.h"

namespace pushpull {

struct Outgoing {
  PeerId to;
  Message message;
};

// A message that a server kept for a later step and dropped when the step began.
struct Dropped {
  PeerId from;
  Refusal refusal;
};

using Outbox = std::vector<Outgoing>;

// Adds a Status without weights. Returns it for more fields; valid until the next message is added.
//   pull: the number of the pull; 0 if there is none.
inline wire::Status& add_status(Outbox& outbox, const PeerId& to, int64_t pull,
                                int64_t pushes_through) {
  Message message;
  wire::Status* status = message.header.mutable_status();
  status->set_pull(pull);
  status->set_pushes_through(pushes_through);
  outbox.push_back({to, std::move(message)});
  return *outbox.back().message.header.mutable_status();
}

// Adds the answer "not ready": the sender asks again.
inline void add_not_ready(Outbox& outbox, const PeerId& to, int64_t pull = 0) {
  add_status(outbox, to, pull, 0).set_not_ready(true);
}

}  // namespace pushpull

// Makes the messages between workers of an all-reduce job. Plain functions; thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "common/net/message.h"

namespace pushpull {

// Returns the sender of a message between workers, or null for any other message. Valid while the
// header exists.
const wire::PeerSender* peer_sender(const wire::Header& header);

// Fields and payloads: common/net/wire.proto.
Message peer_chunk(const wire::PeerSender& sender, int64_t operation, int stage, int index,
                   Payload payload);
Message peer_text(const wire::PeerSender& sender, int64_t operation, std::string text);
Message peer_question(const wire::PeerSender& sender);
Message peer_answer(const wire::PeerSender& sender, int64_t sent);

}  // namespace pushpull

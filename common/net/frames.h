// Message <-> ZeroMQ multipart: [preamble + protobuf header][payload]...; zero-copy both ways.
// Nothing of a received message is trusted before `decode` has said yes. docs/protocol.md has the
// format. Any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "common/net/message.h"

namespace pushpull {

constexpr uint16_t kProtocolVersion = 6;  // raised whenever wire.proto changes its meaning
constexpr size_t kMaxHeaderBytes = size_t{16} << 20;
constexpr size_t kMaxParts = 65'536;

struct Decoded {
  std::optional<Message> message;  // empty: refused
  std::string why;                 // reason when refused
  uint16_t version = 0;            // of the peer, where the preamble was ours
};

// frames: without the routing id. Checks preamble, version, protobuf, and that the payloads are as
// many as the header says, each a whole number of floats.
Decoded decode(std::vector<zmq::message_t> frames);

// The frames of a message. Payloads of more than a page are sent from where they lie.
std::vector<zmq::message_t> encode(const Message& message);

// Payload over a received ZeroMQ message, which it keeps alive; a copy where that one's bytes are
// not aligned for floats.
Payload payload_of(zmq::message_t frame);

}  // namespace pushpull

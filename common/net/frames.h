// Converts a Message to and from a ZeroMQ multipart: [preamble + protobuf header][payload]...;
// zero-copy both ways. `decode` validates every received message before use. docs/protocol.md
// specifies the format. Also sends and receives multiparts. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "common/net/message.h"

namespace pushpull {

constexpr uint16_t kProtocolVersion = 18;  // raised whenever wire.proto changes its meaning
constexpr size_t kMaxHeaderBytes = size_t{16} << 20;
constexpr size_t kMaxParts = 65'536;

struct Decoded {
  std::optional<Message> message;  // nullopt if it was rejected
  std::string why;                 // why it was rejected
  uint16_t version = 0;            // the peer's, if the preamble was ours
};

// Validates preamble, version and protobuf, and checks that there are as many payloads as the
// header says, each a whole number of floats.
//   frames: without the routing id.
Decoded decode(std::vector<zmq::message_t> frames);

// The same for a header with its preamble and payloads that have been received already.
Decoded decode(std::span<const std::byte> head, std::vector<Payload> payloads);

// Returns the first frame of a message: the preamble and the header.
std::vector<std::byte> encode_head(const wire::Header& header);

// Returns the frames of a message. Payloads of a page or more are sent without a copy.
std::vector<zmq::message_t> encode(const Message& message);

// Repeats a call on EINTR. libzmq returns it if a signal is handled during the call, even between
// two frames of one message, the rest of which would look like a new message.
template <class Call>
auto uninterrupted(const Call& call) {
  for (;;) {
    try {
      return call();
    } catch (const zmq::error_t& e) {
      if (e.num() != EINTR) throw;
    }
  }
}

// Returns all frames of one message, or none if no message has arrived; never blocks.
std::vector<zmq::message_t> receive_frames(zmq::socket_t& socket);

// Sends a message, to `peer` if the socket is a ROUTER. Returns false if the queue is full or there
// is no connection; never blocks.
bool send_message(zmq::socket_t& socket, const Message& message, const PeerId& peer = {});

// The bytes of all messages that this process has sent and received on its sockets, to other hosts and
// within its own. Payloads in shared memory are not among them, nor are the headers of TCP. Any thread.
struct Traffic {
  int64_t sent = 0;
  int64_t received = 0;
};

Traffic traffic_of_this_process();

// Counts bytes that did not pass a socket of ZeroMQ.
void count_traffic(int64_t sent, int64_t received);

// Puts it into a report to the coordinator.
void put_traffic(wire::Stats& stats);

// Returns a payload that keeps its ZeroMQ message alive, or a copy if the bytes are not aligned for
// floats.
Payload payload_of(zmq::message_t frame);

}  // namespace pushpull

// ZeroMQ sockets: a Router that many peers connect to, and a Dealer that connects to one. Use each
// from one thread at a time. Sends never block and may be lost: requesters repeat
// (docs/protocol.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "common/keys/credentials.h"
#include "common/net/frames.h"
#include "common/net/handshake_watch.h"

namespace pushpull {

class ZapHandler;

struct EndpointLimits {
  int64_t max_frame_bytes = int64_t{17} << 20;  // a larger frame ends the connection
  bool bulk = false;                            // gradients and weights, not control
  int64_t message_bytes = 0;                    // of a bulk message with one large slice
  int io_thread = kAny;                         // thread of the context that moves a Dealer's bytes
  bool watched = false;                         // a Dealer that can say why it is refused

  static constexpr int kAny = -1;
};

// Limits of a member's connection to the coordinator.
EndpointLimits control_limits();

// Limits of the data connections of a job with slices of `slice_bytes`.
EndpointLimits data_limits(int64_t slice_bytes);

// I/O threads of the ZeroMQ context for data: one thread cannot fill a fast link, and two peers get
// one each. Control has its own context, whose thread is never busy with gradients.
int data_io_threads();

enum class SendResult {
  kSent,
  kGone,  // the peer's connection is closed
  kFull,  // its queue is full, the message is dropped
};

// Waits until one of `items` is ready, at most `timeout_ms`. Returns early with none ready if the
// process handles a signal (a profiler's, for instance).
void poll_sockets(std::span<zmq::pollitem_t> items, int timeout_ms);

class Router {
 public:
  // Binds to `address`; "tcp://127.0.0.1:*" picks a port. `handler` says who may connect, and must
  // outlive this. Throws Error(kUsage) with the address and the reason (port in use, no such
  // interface).
  Router(ZapHandler& handler, const std::string& address, const EndpointLimits& limits);
  // The same, and everybody may connect.
  Router(zmq::context_t& context, const std::string& address, const EndpointLimits& limits);
  ~Router();

  // The bound address, with the port that was picked.
  const std::string& address() const { return address_; }
  // Also listens on `address`. Throws Error(kIo) with the address and the reason.
  void listen_also(const std::string& address);
  // Where it has listened also; connections that exist go on.
  void stop_listening(const std::string& address);
  zmq::socket_t& socket() { return socket_; }

  SendResult send(const PeerId& peer, const Message& message);

  // The next message, or empty if there is none; never blocks. A message that cannot be decoded is
  // counted and dropped; a peer with another protocol version, and an observer that does what it
  // may not, are told so.
  std::optional<std::pair<PeerId, Message>> receive();

  int64_t rejected_frames() const { return rejected_; }
  // Counts a message that was decoded but rejected by its reader.
  void count_rejected() { ++rejected_; }

 private:
  Router(zmq::context_t& context, ZapHandler* handler, const std::string& address,
         const EndpointLimits& limits);
  std::optional<Message> take(const PeerId& peer, std::vector<zmq::message_t> frames);

  ZapHandler* handler_;  // null: everybody may connect
  zmq::socket_t socket_;
  std::string address_;
  int64_t rejected_ = 0;
};

class Dealer {
 public:
  // credentials: what it shows to who listens there.
  Dealer(zmq::context_t& context, const std::string& address, const EndpointLimits& limits,
         const Credentials& credentials = {});

  const std::string& address() const { return address_; }
  zmq::socket_t& socket() { return socket_; }
  // To each of the two where there is a second one: they reach the same reader, which takes what comes
  // twice for a repeat.
  void send(const Message& message);
  std::optional<Message> receive();
  // The connection brings nothing: opens another one to the same address beside it, in the place of an
  // earlier second one. Once it has brought a message, the first one is closed.
  void open_second();
  // How long closing waits for queued messages. Default 0.
  void set_linger_ms(int ms);
  // The peer's protocol version if it differs from ours, else 0.
  uint16_t foreign_version() const { return foreign_version_; }
  int64_t rejected_frames() const { return rejected_; }
  // Why the peer does not let this socket in, if it is watched; see HandshakeWatch.
  std::optional<std::string> refused() { return watch_ ? watch_->refused() : std::nullopt; }

 private:
  zmq::socket_t make_socket();
  void connect(zmq::socket_t& socket);
  std::optional<Message> receive_from(zmq::socket_t& socket);

  zmq::context_t& context_;
  std::string address_;
  EndpointLimits limits_;
  Credentials credentials_;
  zmq::socket_t socket_;
  std::unique_ptr<HandshakeWatch> watch_;  // of the first connection; ends before the socket
  std::optional<zmq::socket_t> second_;
  uint16_t foreign_version_ = 0;
  int64_t rejected_ = 0;
};

}  // namespace pushpull

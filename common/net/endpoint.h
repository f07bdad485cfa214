// ZeroMQ sockets: a Router that many peers connect to, and a Dealer that connects to one. Use each
// from one thread at a time. A send never blocks and may be lost, so requests are repeated
// (docs/protocol.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "common/net/credentials.h"
#include "common/net/frames.h"
#include "common/net/handshake_watch.h"
#include "common/net/intervals.h"
#include "common/net/proven_connection.h"

namespace pushpull {

class ZapHandler;

struct EndpointLimits {
  int64_t max_frame_bytes = int64_t{17} << 20;  // a larger frame ends the connection
  bool bulk = false;                            // for gradients and weights, not control
  int64_t message_bytes = 0;                    // size of a bulk message with one large slice
  int io_thread = kAny;                         // thread of the context that moves a Dealer's bytes
  bool watched = false;                         // a Dealer that can report why it is refused

  static constexpr int kAny = -1;
};

// Returns the limits of a member's connection to the coordinator.
EndpointLimits control_limits();

// Returns the limits of the data connections of a job with slices of `slice_bytes`.
EndpointLimits data_limits(int64_t slice_bytes);

// Returns the number of I/O threads of the ZeroMQ context for data: one per core of
// own_cores(), at most 4. One
// thread cannot fill a fast link, and two peers get one thread each. Control has its own context,
// so that gradients never keep its thread busy.
int data_io_threads();

enum class SendResult {
  kSent,
  kDisconnected,  // the peer's connection is closed
  kFull,          // the peer's queue is full, the message is dropped
};

// Returns a context for `io_threads` that can hold a worker's connections to many servers.
zmq::context_t make_context(int io_threads);

// Throws Error(kUsage) if `address` is none.
void connect_socket(zmq::socket_t& socket, const std::string& address);

// Waits at most `timeout_ms` until one of `items` is ready. Returns early with none ready if the
// process handles a signal (a profiler's, for instance).
void poll_sockets(std::span<zmq::pollitem_t> items, int timeout_ms);

class Router {
 public:
  // Binds to `address`; "tcp://127.0.0.1:*" picks a port, and a range of ports is tried in turn. A name
  // is resolved, and means its first IPv4 address if it has any. `handler` decides which peers may connect, and must outlive the Router. Throws
  // Error(kUsage) with the address and the reason (port in use, no such interface, unknown name).
  Router(ZapHandler& handler, const std::string& address, const EndpointLimits& limits);
  // The same, but every peer may connect.
  Router(zmq::context_t& context, const std::string& address, const EndpointLimits& limits);
  ~Router();

  // Returns the bound address, with the port that was picked.
  const std::string& address() const { return address_; }
  // Also listens on `address`. Throws Error(kIo) with the address and the reason.
  void listen_also(const std::string& address);
  // Stops listening on an address of `listen_also`. Existing connections stay open.
  void stop_listening(const std::string& address);
  zmq::socket_t& socket() { return socket_; }

  SendResult send(const PeerId& peer, const Message& message);

  // Returns the next message, or nullopt if there is none; never blocks. Counts and drops a message
  // that cannot be decoded. Answers with Refused if the peer has another protocol version, or is an
  // observer and sends a message that observers may not send.
  //   budget: if given, also returns nullopt once the messages, dropped ones included, have used it.
  std::optional<std::pair<PeerId, Message>> receive(TurnBudget* budget = nullptr);

  int64_t rejected_frames() const { return rejected_; }
  // Counts a message that was decoded but rejected by its reader.
  void count_rejected() { ++rejected_; }

 private:
  Router(zmq::context_t& context, ZapHandler* handler, const std::string& address,
         const EndpointLimits& limits);
  std::optional<Message> take(const PeerId& peer, std::vector<zmq::message_t> frames);

  ZapHandler* handler_;  // null if every peer may connect
  zmq::socket_t socket_;
  std::string address_;
  int64_t rejected_ = 0;
};

class Dealer {
 public:
  // Asks the resolver if the address has a name: IPv6 is used for names that have no address of IPv4.
  //   credentials: presented to the listening peer.
  // Throws Error(kUsage) naming `address` if it is invalid.
  Dealer(zmq::context_t& context, const std::string& address, const EndpointLimits& limits,
         const Credentials& credentials = {});
  Dealer(const Dealer&) = delete;
  Dealer& operator=(const Dealer&) = delete;

  const std::string& address() const { return address_; }
  // Under Proof::kChallenge another socket takes its place when the connection ends. Read it before
  // each poll, and call `receive` often.
  zmq::socket_t& socket() { return proven_ ? proven_->socket() : socket_; }
  // Sends on both connections if there is a second one. They reach the same receiver, which treats
  // the second copy as a repeat. Under Proof::kChallenge messages wait until the peer has proven
  // itself.
  void send(const Message& message);
  std::optional<Message> receive();
  // Returns whether messages are sent at once, because the peer has proven itself or need not.
  bool ready() const { return !proven_ || proven_->proven(); }
  // Opens another connection to the same address, for use when no messages arrive on this one;
  // replaces an earlier second one. When a message arrives on the second connection, the first one
  // is closed.
  void open_second();
  // Returns whether a watched connection was closed since the last call. Receive all messages first.
  bool take_closed() { return watch_ && watch_->take_closed(); }
  // Sets how long closing waits for queued messages, in milliseconds. Default 0.
  void set_linger_ms(int ms);
  // Returns the peer's protocol version if it differs from ours, else 0.
  uint16_t foreign_version() const { return foreign_version_; }
  int64_t rejected_frames() const { return rejected_ + (proven_ ? proven_->refused() : 0); }
  // Returns a line for users if the peer's name is unknown, or another process listens in its place, else
  // "".
  std::string take_warning();
  // Returns why the name of the peer could not be resolved when it was last asked for, or "". libzmq goes
  // on asking.
  const std::string& unresolved() const { return unresolved_; }
  // Returns why the peer refuses this socket, if the socket is watched; see HandshakeWatch.
  std::optional<std::string> refused() { return watch_ ? watch_->refused() : std::nullopt; }

 private:
  zmq::socket_t make_socket();
  void look_up();
  std::optional<Message> receive_from(zmq::socket_t& socket);

  zmq::context_t& context_;
  std::string address_;
  EndpointLimits limits_;
  Credentials credentials_;
  bool ipv6_ = false;       // the peer's name has no address of IPv4
  bool looked_up_ = false;  // and was found
  std::string unresolved_;
  std::string warning_;
  zmq::socket_t socket_;                      // empty under Proof::kChallenge
  std::unique_ptr<ProvenConnection> proven_;  // Proof::kChallenge
  std::unique_ptr<HandshakeWatch> watch_;  // of the first connection; destroyed before the socket
  std::optional<zmq::socket_t> second_;
  std::unique_ptr<HandshakeWatch> second_watch_;
  uint16_t foreign_version_ = 0;
  int64_t rejected_ = 0;
};

}  // namespace pushpull

// Sockets of one process: a Router that many peers reach, a Dealer that reaches one. Each is used
// by one thread at a time. Sends never block and may lose: requesters repeat (docs/protocol.md).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "common/net/frames.h"

namespace pushpull {

struct EndpointLimits {
  int64_t max_frame_bytes = int64_t{17} << 20;  // of one frame; larger ones end the connection
  bool bulk = false;                            // gradients and weights, no control
  int io_thread = kAny;                         // of the context, that moves a Dealer's bytes

  static constexpr int kAny = -1;
};

// Of the connections for data of a job with slices of so many bytes.
EndpointLimits data_limits(int64_t slice_bytes);

// Threads of the ZeroMQ context for data: one fills no fast link alone, and of two peers each gets
// its own. Control has a context of its own, whose thread is never busy with gradients.
int data_io_threads();

enum class SendResult {
  kSent,
  kGone,  // the peer's connection is closed
  kFull,  // its queue is full, the message is dropped
};

// Waits until one of `items` is ready, at most `timeout_ms`. Ends early, with none ready, where the
// process handles a signal: a profiler's, say.
void poll_sockets(std::span<zmq::pollitem_t> items, int timeout_ms);

class Router {
 public:
  // Binds to `address`; "tcp://127.0.0.1:*" picks a port. Throws Error(kUsage) with the address and
  // reason (port taken, no such interface).
  Router(zmq::context_t& context, const std::string& address, const EndpointLimits& limits);

  // Where it listens, with the port that was picked.
  const std::string& address() const { return address_; }
  // Listens there too. Throws Error(kIo) with the address and reason.
  void listen_also(const std::string& address);
  zmq::socket_t& socket() { return socket_; }

  SendResult send(const PeerId& peer, const Message& message);

  // The next message, without waiting; empty when there is none. What cannot be decoded is counted
  // and dropped; a peer that speaks another protocol version is told so.
  std::optional<std::pair<PeerId, Message>> receive();

  int64_t rejected_frames() const { return rejected_; }
  // Counts a message that was decoded but refused by its reader.
  void count_rejected() { ++rejected_; }

 private:
  zmq::socket_t socket_;
  std::string address_;
  int64_t rejected_ = 0;
};

class Dealer {
 public:
  Dealer(zmq::context_t& context, const std::string& address, const EndpointLimits& limits);

  const std::string& address() const { return address_; }
  zmq::socket_t& socket() { return socket_; }
  void send(const Message& message);
  std::optional<Message> receive();
  // How long closing waits for what is still queued. Default 0.
  void set_linger_ms(int ms);
  // Protocol version of a peer that speaks another one than we, 0 otherwise.
  uint16_t foreign_version() const { return foreign_version_; }
  int64_t rejected_frames() const { return rejected_; }

 private:
  zmq::socket_t socket_;
  std::string address_;
  uint16_t foreign_version_ = 0;
  int64_t rejected_ = 0;
};

}  // namespace pushpull

// The bare ways between two processes of one host, without pushpull: the least that a push and a
// pull can cost. A push takes N bytes to the server and brings a small answer; a pull takes a small
// request there and brings N bytes.
#pragma once

#include <cstddef>
#include <memory>

namespace pushpull::floors {

enum class LinkKind { kTcp, kUnix, kSharedMemory, kZmqTcp, kZmqIpc };

// A client's end. Throws Error when nothing comes within kDeadlineSeconds.
class Link {
 public:
  virtual ~Link() = default;
  virtual void push() = 0;
  virtual void pull() = 0;
};

// A server process, and the way to it. It ends when every client's end is gone.
class LinkServer {
 public:
  virtual ~LinkServer() = default;
  // Client `index` has one end, in whatever process it is.
  virtual std::unique_ptr<Link> connect(size_t index) = 0;
};

// Blocking sockets (buffers of 256 KiB, which was the fastest size that peers were measured with),
// a thread of the server for each client; and shared memory with a unix socket for notifications,
// written once on either way, read in place. Forks: the calling process must have no other thread.
std::unique_ptr<LinkServer> serve_stream(LinkKind kind, size_t bytes, size_t clients);

// ROUTER and DEALER, messages of 1 MiB, sent from where they lie, read in the message.
std::unique_ptr<LinkServer> serve_zmq(LinkKind kind, size_t bytes, size_t clients);

// The one of the two that has this kind.
std::unique_ptr<LinkServer> serve_link(LinkKind kind, size_t bytes, size_t clients);

}  // namespace pushpull::floors

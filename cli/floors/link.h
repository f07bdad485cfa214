// Bare links between two processes of one host, without pushpull: the least that a push and a pull
// can cost. A push sends N bytes to the server and receives a small answer; a pull sends a small
// request and receives N bytes.
#pragma once

#include <cstddef>
#include <memory>

namespace pushpull::floors {

enum class LinkKind { kTcp, kUnix, kSharedMemory, kZmqTcp, kZmqIpc };

// A client's end of a link. push and pull throw Error if the server is silent for kDeadlineSeconds.
class Link {
 public:
  virtual ~Link() = default;
  virtual void push() = 0;
  virtual void pull() = 0;
};

// A server process. It ends when all clients are disconnected.
class LinkServer {
 public:
  virtual ~LinkServer() = default;
  // Returns the end of client `index`. Call in the client's process.
  virtual std::unique_ptr<Link> connect(size_t index) = 0;
};

// Blocking sockets (buffers of 256 KiB, the fastest size that was measured between peers) and one
// server thread per client; or shared memory, with a unix socket for notifications: each tensor is
// written once and read in place. Forks: the calling process must have no other thread.
std::unique_ptr<LinkServer> serve_stream(LinkKind kind, size_t bytes, size_t clients);

// ROUTER and DEALER sockets, messages of 1 MiB, sent and read without a copy.
std::unique_ptr<LinkServer> serve_zmq(LinkKind kind, size_t bytes, size_t clients);

// Calls serve_stream or serve_zmq, depending on `kind`.
std::unique_ptr<LinkServer> serve_link(LinkKind kind, size_t bytes, size_t clients);

}  // namespace pushpull::floors

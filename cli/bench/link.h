// Bare links between two processes of one host, without pushpull: the least that a push and a pull
// can cost. A push sends N bytes to the server and receives a small answer; a pull sends a small
// request and receives N bytes.
#pragma once

#include <sys/mman.h>
#include <sys/types.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/base/error.h"

namespace pushpull::floors {

// Memory pages shared between a process and the processes that it forks. Any thread.
class SharedPages {
 public:
  // bytes: 0 for none. Throws Error(kFailed) if the memory cannot be mapped.
  explicit SharedPages(size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      throw Error(ErrorCode::kFailed,
                  "[floors] cannot map shared memory of " + std::to_string(bytes) + " bytes");
    }
    data_ = data;
    std::memset(data_, 1, bytes);
  }
  ~SharedPages() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  SharedPages(SharedPages&& other) noexcept
      : bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  void* data() const { return data_; }  // null if bytes is 0

 private:
  size_t bytes_;
  void* data_ = nullptr;
};

// Longest time that a process of a floor measurement waits for another.
constexpr int kDeadlineSeconds = 60;

// A forked process of a floor measurement. It dies with its parent.
class Child {
 public:
  // Forks, so the caller must have no other thread. The child runs `body` and exits with its
  // result.
  explicit Child(const std::function<int()>& body);
  // Waits for the child to exit; kills it after kDeadlineSeconds.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

 private:
  pid_t pid_;
};

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

// Links over raw sockets, and over shared memory with a socket for notifications.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/bench/floats.h"
#include "cli/bench/link.h"
#include "common/base/error.h"
#include "common/base/unique_fd.h"

namespace pushpull::floors {
namespace {

constexpr int kSocketBufferBytes = 256 << 10;

enum class StreamVerb : uint64_t { kPush, kPull, kQuit };

struct StreamWord {
  StreamVerb verb;
  uint64_t bytes;
};

[[noreturn]] void fail(const std::string& what) {
  const bool late = errno == EAGAIN || errno == EWOULDBLOCK;
  throw Error(ErrorCode::kFailed,
              "[floors] " + what + ": " +
                  (late ? "nothing within " + std::to_string(kDeadlineSeconds) + " s"
                        : std::string(std::strerror(errno))));
}

void check(bool ok, const char* what) {
  if (!ok) fail(what);
}

// Sends the word and the payload, in one system call if the socket's buffer has room.
void send_all(int fd, const StreamWord& word, const void* data, size_t bytes) {
  StreamWord copy = word;
  iovec parts[2] = {{&copy, sizeof copy}, {const_cast<void*>(data), bytes}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = bytes > 0 ? 2 : 1;
  while (message.msg_iovlen > 0) {
    const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    check(sent > 0, "send");
    auto left = static_cast<size_t>(sent);
    while (message.msg_iovlen > 0 && left >= message.msg_iov->iov_len) {
      left -= message.msg_iov->iov_len;
      ++message.msg_iov;
      --message.msg_iovlen;
    }
    if (message.msg_iovlen > 0) {
      message.msg_iov->iov_base = static_cast<char*>(message.msg_iov->iov_base) + left;
      message.msg_iov->iov_len -= left;
    }
  }
}

// Returns false if the other end is disconnected.
bool receive_all(int fd, void* data, size_t bytes) {
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = recv(fd, to, bytes, 0);
    if (got == 0) return false;
    check(got > 0, "receive");
    to += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

struct Pair {
  UniqueFd client;
  UniqueFd server;
};

void tune(int fd, bool tcp) {
  const int one = 1;
  if (tcp) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSocketBufferBytes, sizeof kSocketBufferBytes);
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kSocketBufferBytes, sizeof kSocketBufferBytes);
  const timeval deadline{kDeadlineSeconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &deadline, sizeof deadline);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof deadline);
}

Pair unix_pair() {
  int fds[2];
  check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0, "socketpair");
  tune(fds[0], false);
  tune(fds[1], false);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Pair tcp_pair() {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  check(listener.get() >= 0, "socket");
  tune(listener.get(), true);  // before connecting: the handshake announces the buffer size
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  check(bind(listener.get(), any, length) == 0, "bind");
  check(listen(listener.get(), 1) == 0, "listen");
  check(getsockname(listener.get(), any, &length) == 0, "getsockname");
  Pair pair{UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), UniqueFd()};
  tune(pair.client.get(), true);
  check(connect(pair.client.get(), any, length) == 0, "connect");
  pair.server = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  check(pair.server.get() >= 0, "accept");
  tune(pair.server.get(), true);
  return pair;
}

class StreamLink : public Link {
 public:
  StreamLink(UniqueFd fd, size_t bytes, void* up)
      : fd_(std::move(fd)),
        bytes_(bytes),
        up_(up),
        gradient_(touched(bytes, 1e-3F)),
        weights_(touched(up == nullptr ? bytes : 0, 0.0F)) {}

  // Sends kQuit, since other processes may hold copies of the descriptor and keep it open.
  ~StreamLink() override {
    const StreamWord quit{StreamVerb::kQuit, 0};
    send(fd_.get(), &quit, sizeof quit, MSG_NOSIGNAL);
  }

  void push() override {
    if (up_ != nullptr) std::memcpy(up_, gradient_.get(), bytes_);
    send_all(fd_.get(), {StreamVerb::kPush, bytes_}, gradient_.get(), up_ == nullptr ? bytes_ : 0);
    answer();
  }

  void pull() override {
    send_all(fd_.get(), {StreamVerb::kPull, bytes_}, nullptr, 0);
    answer();
    if (up_ != nullptr) return;  // used in place, where the server wrote it
    if (!receive_all(fd_.get(), weights_.get(), bytes_)) fail("pull");
  }

 private:
  void answer() {
    StreamWord word{};
    if (!receive_all(fd_.get(), &word, sizeof word)) fail("answer");
  }

  UniqueFd fd_;
  size_t bytes_;
  void* up_;  // shared memory, or null
  Floats gradient_;
  Floats weights_;
};

void answer_client(int fd, size_t bytes, const float* weights, void* down) {
  const bool shared = down != nullptr;
  const Floats gradient = touched(shared ? 0 : bytes, 0.0F);
  StreamWord word{};
  while (receive_all(fd, &word, sizeof word) && word.verb != StreamVerb::kQuit) {
    if (word.verb == StreamVerb::kPush) {
      if (!shared && !receive_all(fd, gradient.get(), bytes)) return;
      send_all(fd, word, nullptr, 0);
    } else {
      if (shared) std::memcpy(down, weights, bytes);
      send_all(fd, word, weights, shared ? 0 : bytes);
    }
  }
}

// Runs one client's thread in the server's process.
void serve_client(int fd, size_t bytes, const float* weights, void* down) {
  try {
    answer_client(fd, bytes, weights, down);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());  // the client's own wait ends at its deadline
  }
}

class StreamServer : public LinkServer {
 public:
  StreamServer(LinkKind kind, size_t bytes, size_t clients) : bytes_(bytes) {
    const size_t shared = kind == LinkKind::kSharedMemory ? bytes : 0;
    for (size_t i = 0; i < clients; ++i) {
      pairs_.push_back(kind == LinkKind::kTcp ? tcp_pair() : unix_pair());
      up_.emplace_back(shared);
      down_.emplace_back(shared);
    }
    child_ = std::make_unique<Child>([this] { return serve(); });
    for (Pair& pair : pairs_) pair.server.reset();
  }

  ~StreamServer() override {
    pairs_.clear();  // the server ends when no client is connected
    child_.reset();
  }

  std::unique_ptr<Link> connect(size_t index) override {
    return std::make_unique<StreamLink>(std::move(pairs_.at(index).client), bytes_,
                                        up_.at(index).data());
  }

 private:
  int serve() {
    for (Pair& pair : pairs_) pair.client.reset();
    const Floats weights = touched(bytes_, 1.0F);
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      threads.emplace_back(
          [&, i] { serve_client(pairs_[i].server.get(), bytes_, weights.get(), down_[i].data()); });
    }
    return 0;
  }

  size_t bytes_;
  std::vector<Pair> pairs_;
  std::vector<SharedPages> up_;    // gradients, one per client
  std::vector<SharedPages> down_;  // weights
  std::unique_ptr<Child> child_;
};

}  // namespace

std::unique_ptr<LinkServer> serve_stream(LinkKind kind, size_t bytes, size_t clients) {
  return std::make_unique<StreamServer>(kind, bytes, clients);
}

}  // namespace pushpull::floors

// Links over bare ZeroMQ.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <zmq.hpp>

#include "cli/bench/floats.h"
#include "cli/bench/link.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/unique_fd.h"

namespace pushpull::floors {
namespace {

constexpr size_t kMessageBytes = 1 << 20;
constexpr int kSendBuffer = 256 << 10;  // the same as pushpull uses within a host
constexpr int kServerThreads = 2;
constexpr auto kConnectEvery = std::chrono::milliseconds(10);

enum class ZmqVerb : uint64_t { kPush, kPull, kQuit };

struct ZmqWord {
  ZmqVerb verb;
  uint64_t last;  // message of a tensor
};

zmq::socket_t make_socket(zmq::context_t& context, zmq::socket_type type) {
  zmq::socket_t socket(context, type);
  socket.set(zmq::sockopt::sndbuf, kSendBuffer);
  socket.set(zmq::sockopt::sndhwm, 0);
  socket.set(zmq::sockopt::rcvhwm, 0);
  socket.set(zmq::sockopt::linger, 1000 * kDeadlineSeconds);
  socket.set(zmq::sockopt::sndtimeo, 1000 * kDeadlineSeconds);
  socket.set(zmq::sockopt::rcvtimeo, 1000 * kDeadlineSeconds);
  return socket;
}

zmq::message_t receive(zmq::socket_t& socket) {
  zmq::message_t message;
  if (!socket.recv(message)) {
    throw Error(ErrorCode::kFailed,
                "[floors] zmq: nothing within " + std::to_string(kDeadlineSeconds) + " s");
  }
  return message;
}

ZmqWord receive_word(zmq::socket_t& socket) { return *receive(socket).data<ZmqWord>(); }

void send_word(zmq::socket_t& socket, const ZmqWord& word, bool more) {
  socket.send(zmq::buffer(&word, sizeof word),
              more ? zmq::send_flags::sndmore : zmq::send_flags::none);
}

void keep(void* /*data*/, void* /*hint*/) {}  // the tensor outlives the socket

// Sends the tensor without a copy, in messages of at most kMessageBytes. to: routing id of a
// ROUTER's peer; null on a DEALER.
void send_tensor(zmq::socket_t& socket, zmq::message_t* to, ZmqVerb verb, float* floats,
                 size_t bytes) {
  auto* from = reinterpret_cast<char*>(floats);
  for (size_t done = 0; done < bytes; done += kMessageBytes) {
    const size_t size = std::min(kMessageBytes, bytes - done);
    if (to != nullptr) {
      zmq::message_t id;
      id.copy(*to);
      socket.send(id, zmq::send_flags::sndmore);
    }
    send_word(socket, {verb, done + size == bytes ? 1U : 0U}, true);
    socket.send(zmq::message_t(from + done, size, keep), zmq::send_flags::none);
  }
}

class ZmqLink : public Link {
 public:
  ZmqLink(const std::string& endpoint, size_t bytes)
      : bytes_(bytes),
        gradient_(touched(bytes, 1e-3F)),
        socket_(make_socket(context_, zmq::socket_type::dealer)) {
    socket_.connect(endpoint);
  }
  ~ZmqLink() override { send_word(socket_, {ZmqVerb::kQuit, 1}, false); }

  void push() override {
    send_tensor(socket_, nullptr, ZmqVerb::kPush, gradient_.get(), bytes_);
    receive_word(socket_);
  }

  void pull() override {
    send_word(socket_, {ZmqVerb::kPull, 1}, false);
    while (true) {
      const ZmqWord word = receive_word(socket_);
      const zmq::message_t part = receive(socket_);
      if (part.size() > 0) touched_ = *part.data<char>();
      if (word.last != 0) return;
    }
  }

 private:
  size_t bytes_;
  volatile char touched_ = 0;  // forces the received message to be read
  Floats gradient_;            // outlives context and socket, which may still be sending it
  zmq::context_t context_;
  zmq::socket_t socket_;
};

int serve(LinkKind kind, int announce, size_t bytes, size_t clients) {
  keep_heap();
  const Floats weights = touched(bytes, 1.0F);
  zmq::context_t context(kServerThreads);
  zmq::socket_t socket = make_socket(context, zmq::socket_type::router);
  socket.bind(kind == LinkKind::kZmqTcp ? "tcp://127.0.0.1:*" : "ipc://*");
  const std::string endpoint = socket.get(zmq::sockopt::last_endpoint) + "\n";
  if (write(announce, endpoint.data(), endpoint.size()) < 0) return 1;
  close(announce);
  for (size_t gone = 0; gone < clients;) {
    zmq::message_t from = receive(socket);
    const ZmqWord word = receive_word(socket);
    if (word.verb == ZmqVerb::kPull) {
      send_tensor(socket, &from, ZmqVerb::kPull, weights.get(), bytes);
    } else if (word.verb == ZmqVerb::kPush) {
      receive(socket);
      if (word.last == 0) continue;
      socket.send(from, zmq::send_flags::sndmore);
      send_word(socket, word, false);
    } else {
      ++gone;
    }
  }
  return 0;
}

class ZmqServer : public LinkServer {
 public:
  ZmqServer(LinkKind kind, size_t bytes, size_t clients) : bytes_(bytes) {
    int fds[2];
    if (pipe(fds) != 0) throw Error(ErrorCode::kFailed, "[floors] cannot make a pipe");
    const UniqueFd reader(fds[0]);
    UniqueFd writer(fds[1]);
    child_ = std::make_unique<Child>(
        [&, kind, bytes, clients] { return serve(kind, fds[1], bytes, clients); });
    writer.reset();
    for (char c = 0; read(reader.get(), &c, 1) == 1 && c != '\n';) endpoint_ += c;
    if (endpoint_.empty())
      throw Error(ErrorCode::kFailed, "[floors] zmq: the server did not start");
  }

  std::unique_ptr<Link> connect(size_t index) override {
    // Without the pause the server may give both connections to the same I/O thread.
    std::this_thread::sleep_for(index * kConnectEvery);
    return std::make_unique<ZmqLink>(endpoint_, bytes_);
  }

 private:
  size_t bytes_;
  std::string endpoint_;
  std::unique_ptr<Child> child_;
};

}  // namespace

std::unique_ptr<LinkServer> serve_zmq(LinkKind kind, size_t bytes, size_t clients) {
  return std::make_unique<ZmqServer>(kind, bytes, clients);
}

}  // namespace pushpull::floors

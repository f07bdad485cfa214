#include "common/net/proven_connection.h"

#include <cstring>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/net/data_proof.h"
#include "common/net/endpoint.h"
#include "common/net/frames.h"

namespace pushpull {

namespace {

constexpr size_t kMaxHeld = 4096;
constexpr int64_t kLookMs = 10;

}  // namespace

ProvenConnection::ProvenConnection(zmq::context_t& context, std::string address,
                                   const Credentials& credentials,
                                   std::function<zmq::socket_t()> make_socket)
    : context_(context),
      address_(std::move(address)),
      make_socket_(std::move(make_socket)),
      proof_(credentials) {
  open();
}

ProvenConnection::~ProvenConnection() { close_events(); }

// An unread monitor would block libzmq's I/O thread.
void ProvenConnection::close_events() {
  if (socket_.handle() != nullptr) zmq_socket_monitor(socket_.handle(), nullptr, 0);
  events_.close();
}

void ProvenConnection::open() {
  close_events();
  const ServerProof::Opening opening = proof_.open(new_nonce(), now_ms());
  zmq::socket_t socket = make_socket_();
  socket.set(zmq::sockopt::plain_username, opening.user);
  socket.set(zmq::sockopt::plain_password, opening.password);
  socket.set(zmq::sockopt::reconnect_ivl, -1);
  const std::string monitor = "inproc://pushpull-data-" + std::to_string(random_id());
  // CLOSED: it could not be made. DISCONNECTED: it has ended, before or after its handshake.
  constexpr int kEvents = ZMQ_EVENT_CLOSED | ZMQ_EVENT_DISCONNECTED;
  PP_ASSERT(zmq_socket_monitor(socket.handle(), monitor.c_str(), kEvents) == 0);
  events_ = zmq::socket_t(context_, zmq::socket_type::pair);
  events_.set(zmq::sockopt::linger, 0);
  events_.connect(monitor);
  connect_socket(socket, address_);
  socket_ = std::move(socket);
  Message challenge;
  challenge.header.mutable_challenge()->set_nonce(opening.nonce);
  send_message(socket_, challenge);
}

bool ProvenConnection::has_ended() {
  zmq::message_t frame;
  bool ended = false;
  while (events_.recv(frame, zmq::recv_flags::dontwait)) ended = true;
  return ended;
}

void ProvenConnection::turn() {
  const int64_t now = now_ms();
  if (now >= look_ms_) {
    look_ms_ = now + kLookMs;
    if (has_ended()) proof_.on_end(now);
    if (proof_.open_due(now)) open();
  }
  if (!held_.empty()) flush();
}

void ProvenConnection::flush() {
  while (proof_.proven() && !held_.empty() && send_message(socket_, held_.front())) {
    held_.pop_front();
  }
}

void ProvenConnection::send(const Message& message) {
  turn();
  if (proof_.proven() && held_.empty()) {
    if (send_message(socket_, message)) return;
    // its queue is full, or the connection has just ended
    if (!has_ended()) return;
    proof_.on_end(now_ms());
  }
  if (held_.size() < kMaxHeld) held_.push_back(message);
}

bool ProvenConnection::take(const Message& message) {
  if (proof_.proven()) return true;
  if (!proof_.waits()) return false;  // came on a connection that has ended
  if (!message.header.has_challenge_answer()) {
    refuse("sends messages instead of the proof of this run's key");
    return false;
  }
  if (proof_.on_proof(message.header.challenge_answer().proof(), now_ms())) {
    warned_ = false;
    flush();
  } else {
    refuse("does not prove this run's key");
  }
  return false;
}

void ProvenConnection::refuse(const std::string& what) {
  ++refused_;
  proof_.on_end(now_ms());
  if (std::exchange(warned_, true)) return;
  warning_ = "[key] the process at " + address_ + " " + what +
             "; nothing is sent to it until it does. Is it another program, in a server's place?";
}

}  // namespace pushpull

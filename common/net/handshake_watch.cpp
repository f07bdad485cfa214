#include "common/net/handshake_watch.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/net/greeting.h"

namespace pushpull {

namespace {

// A peer that exits closes once, and so does a proxy before its target is up.
constexpr int kClosedOften = 3;
constexpr int kGreetingMs = 1000;

const char* mechanism_of(Proof proof) {
  return proof == Proof::kCurve ? "CURVE" : proof == Proof::kChallenge ? "PLAIN" : "NULL";
}

}  // namespace

HandshakeWatch::HandshakeWatch(zmq::context_t& context, zmq::socket_t& socket, std::string address,
                               Credentials credentials)
    : context_(context),
      socket_(socket),
      address_(std::move(address)),
      credentials_(std::move(credentials)) {
  const std::string monitor = "inproc://pushpull-watch-" + std::to_string(random_id());
  constexpr int kEvents = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                          ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
  PP_ASSERT(zmq_socket_monitor(socket_.handle(), monitor.c_str(), kEvents) == 0);
  events_ = zmq::socket_t(context_, zmq::socket_type::pair);
  events_.set(zmq::sockopt::linger, 0);
  events_.set(zmq::sockopt::rcvhwm, 0);  // unread events must not block libzmq's I/O thread
  events_.connect(monitor);
}

HandshakeWatch::~HandshakeWatch() { zmq_socket_monitor(socket_.handle(), nullptr, 0); }

void HandshakeWatch::take_events() {
  zmq::message_t frame;
  while (events_.recv(frame, zmq::recv_flags::dontwait)) {
    if (!frame.more()) continue;  // the address
    uint16_t event = 0;
    uint32_t value = 0;
    if (frame.size() != sizeof event + sizeof value) continue;
    std::memcpy(&event, frame.data(), sizeof event);
    std::memcpy(&value, static_cast<const char*>(frame.data()) + sizeof event, sizeof value);
    if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
      closed_ = 0;
    } else if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) {
      seen_ = Seen::kDenied;
    } else if (event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL &&
               value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH) {
      seen_ = Seen::kOtherMechanism;
    } else if (event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL && value == EPIPE) {
      // a listener with too many connections resets them instead (ECONNRESET)
      ++closed_;
    }
  }
}

std::string HandshakeWatch::other_key() const {
  return "[key] the server at " + address_ + " has a different key than this program, which uses " +
         credentials_.source +
         "; give both the same key: --key FILE, or PUSHPULL_KEY_FILE, or ~/.config/pushpull/key";
}

// Compares the peer's mechanism with ours. If they are equal, a peer that closes does not accept
// our key.
std::optional<std::string> HandshakeWatch::ask_peer() {
  const std::string own = mechanism_of(credentials_.proof);
  const std::string offered = mechanism_at(context_, address_, kGreetingMs);
  if (offered == own && credentials_.proof != Proof::kNone) return other_key();
  if (offered == own || (offered.empty() && seen_ == Seen::kNothing)) return std::nullopt;
  if (credentials_.proof == Proof::kNone) {
    return "[key] the server at " + address_ +
           " admits only holders of its key, and this program was started with --insecure; start "
           "it without that, or with --key FILE";
  }
  return "[key] the server at " + address_ +
         " asks for no key (it was started with --insecure, or is of an older release); start this "
         "program with --insecure, too, if you trust that network";
}

std::optional<std::string> HandshakeWatch::refused() {
  take_events();
  if (seen_ == Seen::kDenied) return other_key();
  if (seen_ == Seen::kNothing && closed_ < kClosedOften) return std::nullopt;
  std::optional<std::string> why = ask_peer();
  seen_ = Seen::kNothing;
  closed_ = 0;
  return why;
}

}  // namespace pushpull

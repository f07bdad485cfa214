#include "common/net/handshake_watch.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/net/endpoint.h"

namespace pushpull {

namespace {

using std::string_view_literals::operator""sv;

// A peer that exits closes once, and so does a proxy before its target is up.
constexpr int kClosedOften = 3;
constexpr int kGreetingMs = 1000;

// signature, version 3.0, mechanism padded to 20 bytes, as-server flag, filler
constexpr size_t kGreetingBytes = 64;
constexpr size_t kMechanismAt = 12;
constexpr size_t kMechanismBytes = 20;
// Our greeting up to the version. A peer that reads a mechanism that it does not accept closes
// silently, so we send none.
constexpr std::string_view kBegin = "\xff\0\0\0\0\0\0\0\0\x7f\x03\0"sv;

const char* mechanism_of(Proof proof) {
  return proof == Proof::kCurve ? "CURVE" : proof == Proof::kChallenge ? "PLAIN" : "NULL";
}

}  // namespace

std::string mechanism_at(zmq::context_t& context, const std::string& address, int timeout_ms) {
  zmq::socket_t stream(context, zmq::socket_type::stream);  // bare TCP
  stream.set(zmq::sockopt::linger, 0);
  stream.connect(address);
  std::string greeting;
  const int64_t until_ms = now_ms() + timeout_ms;
  while (greeting.size() < kGreetingBytes && now_ms() < until_ms) {
    zmq::pollitem_t item{stream.handle(), 0, ZMQ_POLLIN, 0};
    poll_sockets({&item, 1}, static_cast<int>(std::max<int64_t>(until_ms - now_ms(), 0)));
    zmq::message_t peer;
    zmq::message_t bytes;
    if (!stream.recv(peer, zmq::recv_flags::dontwait)) continue;
    if (!stream.recv(bytes, zmq::recv_flags::dontwait)) continue;
    if (bytes.size() > 0) {
      greeting += bytes.to_string();
      continue;
    }
    // an empty frame: the connection was opened or closed
    if (!stream.send(peer, zmq::send_flags::sndmore | zmq::send_flags::dontwait)) break;
    stream.send(zmq::buffer(kBegin), zmq::send_flags::dontwait);
  }
  if (greeting.size() < kGreetingBytes) return "";
  const std::string name = greeting.substr(kMechanismAt, kMechanismBytes);
  return name.substr(0, name.find('\0'));
}

HandshakeWatch::HandshakeWatch(zmq::context_t& context, zmq::socket_t& socket, std::string address,
                               Credentials credentials)
    : context_(context),
      socket_(socket.handle()),
      address_(std::move(address)),
      credentials_(std::move(credentials)) {
  const std::string monitor = "inproc://pushpull-watch-" + std::to_string(random_id());
  constexpr int kEvents = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                          ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
                          ZMQ_EVENT_DISCONNECTED;
  PP_ASSERT(zmq_socket_monitor(socket_, monitor.c_str(), kEvents) == 0);
  events_ = zmq::socket_t(context_, zmq::socket_type::pair);
  events_.set(zmq::sockopt::linger, 0);
  events_.set(zmq::sockopt::rcvhwm, 0);  // unread events must not block libzmq's I/O thread
  events_.connect(monitor);
}

HandshakeWatch::~HandshakeWatch() { zmq_socket_monitor(socket_, nullptr, 0); }

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
      connected_ = true;
    } else if (event == ZMQ_EVENT_DISCONNECTED) {
      was_closed_ = std::exchange(connected_, false) || was_closed_;
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

bool HandshakeWatch::take_closed() {
  take_events();
  return std::exchange(was_closed_, false);
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

#include "common/net/endpoint.h"

#include <net/if.h>

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/host/cores.h"
#include "common/net/address.h"
#include "common/net/zap_handler.h"

namespace pushpull {

namespace {

// If bytes on a data connection stay unacknowledged for this long, the kernel closes it
// (TCP_USER_TIMEOUT, RFC 5482) and libzmq opens another: a firewall may have forgotten the
// connection. Without the limit the kernel retries for 15 minutes. Control connections have no such
// limit, since a member soon counts as lost once its control connection is closed; Member opens a
// second one instead.
constexpr int kUnacknowledgedMs = 5000;
constexpr int kBacklog = 512;
constexpr int kReconnectMs = 50;
constexpr int kReconnectMaxMs = 1000;
constexpr int kQueuedMessages = 4096;
// Unread bytes on each connection before its sender must wait. A message holds about 1 MiB, or a
// slice.
constexpr int64_t kUnreadBytes = int64_t{64} << 20;
constexpr int64_t kMessageBytes = int64_t{1} << 20;
constexpr int kMinUnread = 16;
constexpr int64_t kFrameSlack = int64_t{1} << 16;  // on top of the slice size
// Send buffer of a data connection within one host. The kernel would let it grow to megabytes,
// which leave the cache between write and read. The receive buffer stays under the kernel's
// control: with a fixed one each wake-up delivers less data, and bare ZeroMQ is slower. On a
// network the kernel sizes both, since the size must follow the round-trip time.
constexpr int kLocalBufferBytes = 1 << 18;
constexpr int kMaxIoThreads = 4;

// Returns true for the messages that an observer may send; a member may send all.
bool observer_may_send(const wire::Header& header) { return header.has_status_request(); }

// Returns true for "ipc://..." and for tcp to a loopback address.
bool within_host(const std::string& address) {
  if (address.rfind("tcp://", 0) != 0) return address.rfind("ipc://", 0) == 0;
  return address.rfind("tcp://127.", 0) == 0 || address.rfind("tcp://localhost:", 0) == 0 ||
         address.rfind("tcp://[::1]:", 0) == 0;
}

int unread_messages(const EndpointLimits& limits) {
  if (!limits.bulk) return kQueuedMessages;
  const int64_t largest = std::max(kMessageBytes, limits.message_bytes);
  return std::max(kMinUnread, static_cast<int>(kUnreadBytes / largest));
}

//   ipv6: also for names. libzmq then prefers addresses of IPv6.
void set_common_options(zmq::socket_t& socket, const std::string& address, bool ipv6,
                        const EndpointLimits& limits) {
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::maxmsgsize, limits.max_frame_bytes);
  socket.set(zmq::sockopt::sndtimeo, 0);
  socket.set(zmq::sockopt::handshake_ivl, static_cast<int>(ConnectionCaps::kHandshakeMs));
  if (limits.bulk) socket.set(zmq::sockopt::tcp_maxrt, kUnacknowledgedMs);
  socket.set(zmq::sockopt::sndhwm, kQueuedMessages);
  socket.set(zmq::sockopt::rcvhwm, unread_messages(limits));
  socket.set(zmq::sockopt::ipv6, ipv6);
  if (limits.io_thread != EndpointLimits::kAny) {
    socket.set(zmq::sockopt::affinity, uint64_t{1} << limits.io_thread);
  }
  if (!limits.bulk || !within_host(address)) return;
  socket.set(zmq::sockopt::sndbuf, kLocalBufferBytes);
}

bool is_bracketed(const std::string& address) { return address.find('[') != std::string::npos; }

// Returns the host of an address over TCP, or "" for others and for what is no address.
std::string tcp_host(const std::string& address) {
  if (!address.starts_with("tcp://")) return "";
  try {
    return parse_address(address, "join").host;
  } catch (const Error&) {
    return "";  // libzmq refuses it, too
  }
}

Error cannot_listen(const std::string& address, const std::string& why) {
  return {ErrorCode::kUsage, "[listen] cannot listen on " + address + ": " + why};
}

// Returns the address with an IP address in the place of a name: libzmq binds to addresses and
// interfaces only.
std::string with_numbers(const std::string& address) {
  const std::string host = tcp_host(address);
  const bool everywhere = host == "*";
  if (host.empty() || everywhere || if_nametoindex(host.c_str()) != 0) return address;
  const HostLookUp found = look_up_host(host);
  if (found.addresses.empty()) {
    throw cannot_listen(address,
                        host + " cannot be resolved: " + found.why +
                            "; give an address or an interface of this host, or * for all");
  }
  return Address{found.addresses.front(), parse_address(address, "listen").port}.to_string();
}

// Returns what to do about a failure to bind.
std::string bind_hint(int error) {
  switch (error) {
    case EADDRINUSE:
      return "; choose another port, a range of them (5600-5631) or tcp://127.0.0.1:* for a free "
             "one";
    case EADDRNOTAVAIL:
    case ENODEV:
      return "; this host has no such address or interface (`ip address` lists them; * is all)";
    case EACCES:
      return "; ports below 1024 are root's";
    default:
      return "";
  }
}

// Binds to the first port of the address that is free. Throws zmq::error_t of the last one.
void bind_one_of(zmq::socket_t& socket, const std::string& address) {
  const bool tcp = address.starts_with("tcp://");
  const std::vector<std::string> ports =
      tcp ? parse_address(address, "listen").ports() : std::vector<std::string>{""};
  for (const std::string& port : ports) {
    try {
      uninterrupted([&] { socket.bind(tcp ? with_port(address, port) : address); });
      return;
    } catch (const zmq::error_t& e) {
      if (e.num() != EADDRINUSE || &port == &ports.back()) throw;
    }
  }
}

void show(zmq::socket_t& socket, const Credentials& credentials) {
  if (credentials.proof == Proof::kCurve) {
    socket.set(zmq::sockopt::curve_serverkey, credentials.server_public);
    socket.set(zmq::sockopt::curve_publickey, credentials.own.public_key);
    socket.set(zmq::sockopt::curve_secretkey, credentials.own.secret_key);
  }
}

// Returns a property that libzmq or the ZapHandler set for the sender of a frame, or "".
std::string property(zmq::message_t& frame, const char* name) {
  const char* const value = zmq_msg_gets(frame.handle(), name);
  return value == nullptr ? "" : value;
}

}  // namespace

EndpointLimits control_limits() {
  EndpointLimits limits;
  limits.watched = true;
  return limits;
}

EndpointLimits data_limits(int64_t slice_bytes) {
  EndpointLimits limits;
  limits.max_frame_bytes = std::max(limits.max_frame_bytes, slice_bytes + kFrameSlack);
  limits.message_bytes = slice_bytes;
  limits.bulk = true;
  return limits;
}

int data_io_threads() { return std::min(own_cores().count(), kMaxIoThreads); }

zmq::context_t make_context(int io_threads) {
  zmq::context_t context(io_threads);
  // a data connection has two more sockets, for its events; libzmq's default is 1,023
  context.set(zmq::ctxopt::max_sockets, context.get(zmq::ctxopt::socket_limit));
  return context;
}

void connect_socket(zmq::socket_t& socket, const std::string& address) {
  try {
    uninterrupted([&] { socket.connect(address); });
  } catch (const zmq::error_t& e) {
    throw Error(ErrorCode::kUsage, "[join] cannot connect to " + address + ": " + e.what() +
                                       "; expected tcp://HOST:PORT");
  }
}

void poll_sockets(std::span<zmq::pollitem_t> items, int timeout_ms) {
  if (zmq_poll(items.data(), static_cast<int>(items.size()), timeout_ms) >= 0) return;
  if (zmq_errno() != EINTR) throw zmq::error_t();
  for (zmq::pollitem_t& item : items) item.revents = 0;
}

Router::Router(ZapHandler& handler, const std::string& address, const EndpointLimits& limits)
    : Router(handler.context(), &handler, address, limits) {}

Router::Router(zmq::context_t& context, const std::string& address, const EndpointLimits& limits)
    : Router(context, nullptr, address, limits) {}

Router::Router(zmq::context_t& context, ZapHandler* handler, const std::string& address,
               const EndpointLimits& limits)
    : handler_(handler), socket_(context, zmq::socket_type::router) {
  const std::string numbers = with_numbers(address);
  set_common_options(socket_, numbers, is_bracketed(numbers), limits);
  if (handler_ != nullptr) handler_->guard(socket_);
  socket_.set(zmq::sockopt::router_mandatory, true);
  socket_.set(zmq::sockopt::backlog, kBacklog);
  try {
    bind_one_of(socket_, numbers);
  } catch (const zmq::error_t& e) {
    if (handler_ != nullptr) handler_->release(socket_);
    throw cannot_listen(address + (numbers == address ? "" : ", which is " + numbers),
                        std::string(e.what()) + bind_hint(e.num()));
  }
  address_ = socket_.get(zmq::sockopt::last_endpoint);
}

Router::~Router() {
  if (handler_ != nullptr) handler_->release(socket_);
}

void Router::listen_also(const std::string& address) {
  try {
    uninterrupted([&] { socket_.bind(address); });
  } catch (const zmq::error_t& e) {
    throw Error(ErrorCode::kIo, "[listen] cannot listen on " + address + ": " + e.what());
  }
}

void Router::stop_listening(const std::string& address) {
  uninterrupted([&] { socket_.unbind(address); });
}

SendResult Router::send(const PeerId& peer, const Message& message) {
  try {
    return send_message(socket_, message, peer) ? SendResult::kSent : SendResult::kFull;
  } catch (const zmq::error_t& e) {
    if (e.num() == EHOSTUNREACH) return SendResult::kDisconnected;
    throw;
  }
}

std::optional<std::pair<PeerId, Message>> Router::receive(TurnBudget* budget) {
  while (budget == nullptr || budget->left()) {
    std::vector<zmq::message_t> frames = receive_frames(socket_);
    if (frames.empty()) return std::nullopt;
    if (budget != nullptr) budget->spend(frames);
    PeerId peer = frames[0].to_string();
    if (auto message = take(peer, std::move(frames))) return std::pair{peer, std::move(*message)};
  }
  return std::nullopt;
}

// frames: the peer's id and its message. Returns nullopt if the message was refused.
std::optional<Message> Router::take(const PeerId& peer, std::vector<zmq::message_t> frames) {
  // the first frame is libzmq's own and does not always have the sender's properties
  const bool observer = handler_ != nullptr && handler_->accepts_observers() &&
                        property(frames.back(), "User-Id") == kObserverUser;
  const std::string host = observer ? property(frames.back(), "Peer-Address") : "";
  frames.erase(frames.begin());
  Decoded decoded = decode(std::move(frames));
  Message answer;
  if (decoded.message) {
    if (decoded.message->header.has_challenge() && handler_ != nullptr &&
        handler_->is_challenged()) {
      answer.header.mutable_challenge_answer()->set_proof(
          handler_->proof(decoded.message->header.challenge().nonce()));
      send(peer, answer);
      return std::nullopt;
    }
    if (!observer || observer_may_send(decoded.message->header)) return std::move(decoded.message);
    handler_->count_refused(host, {"observer", "an observer may read the status and nothing else"});
    answer.header.mutable_refused()->set_code(static_cast<int>(ErrorCode::kRefused));
    answer.header.mutable_refused()->set_text(
        "[key] this process has an observer's key, which reads the status of a job and nothing "
        "else; name the job's key with --key FILE");
    send(peer, answer);
    return std::nullopt;
  }
  ++rejected_;
  if (decoded.version != 0 && decoded.version != kProtocolVersion) {
    answer.header.mutable_refused()->set_code(static_cast<int>(ErrorCode::kProtocol));
    answer.header.mutable_refused()->set_text("[join] " + decoded.why);
    send(peer, answer);
  }
  return std::nullopt;
}

Dealer::Dealer(zmq::context_t& context, const std::string& address, const EndpointLimits& limits,
               const Credentials& credentials)
    : context_(context), address_(address), limits_(limits), credentials_(credentials) {
  if (credentials.proof == Proof::kChallenge) {
    proven_ = std::make_unique<ProvenConnection>(context, address, credentials,
                                                 [this] { return make_socket(); });
    return;
  }
  socket_ = make_socket();
  // before connecting, since a refusal may come quickly
  if (limits.watched) {
    watch_ = std::make_unique<HandshakeWatch>(context, socket_, address, credentials);
  }
  connect_socket(socket_, address_);
}

void Dealer::look_up() {
  const std::string host = tcp_host(address_);
  if (host.empty() || host == "*") return;
  const HostLookUp found = look_up_host(host);
  looked_up_ = !found.addresses.empty();
  ipv6_ = looked_up_ ? found.only_ipv6() : !has_ipv4();
  if (!looked_up_ && unresolved_.empty()) {
    warning_ = "[join] " + host + " cannot be resolved: " + found.why + "; asking again";
  }
  unresolved_ = looked_up_ ? "" : host + " cannot be resolved: " + found.why;
}

std::string Dealer::take_warning() {
  if (!warning_.empty()) return std::exchange(warning_, {});
  return proven_ ? proven_->take_warning() : "";
}

zmq::socket_t Dealer::make_socket() {
  if (!looked_up_) look_up();
  zmq::socket_t socket(context_, zmq::socket_type::dealer);
  set_common_options(socket, address_, ipv6_ || is_bracketed(address_), limits_);
  show(socket, credentials_);
  socket.set(zmq::sockopt::reconnect_ivl, kReconnectMs);
  socket.set(zmq::sockopt::reconnect_ivl_max, kReconnectMaxMs);
  return socket;
}

void Dealer::open_second() {
  second_watch_.reset();
  second_.emplace(make_socket());
  if (limits_.watched) {
    second_watch_ = std::make_unique<HandshakeWatch>(context_, *second_, address_, credentials_);
  }
  connect_socket(*second_, address_);
}

void Dealer::send(const Message& message) {
  if (proven_) return proven_->send(message);
  send_message(socket_, message);
  if (second_) send_message(*second_, message);
}

std::optional<Message> Dealer::receive() {
  if (proven_) {
    while (auto message = receive_from(proven_->socket())) {
      if (proven_->take(*message)) return message;
    }
    proven_->turn();  // last: what has arrived before the end is for the reader
    return std::nullopt;
  }
  if (second_) {
    if (auto message = receive_from(*second_)) {
      watch_ = std::move(second_watch_);  // ends the first one's
      socket_ = std::move(*second_);
      second_.reset();
      return message;
    }
  }
  return receive_from(socket_);
}

std::optional<Message> Dealer::receive_from(zmq::socket_t& socket) {
  for (;;) {
    std::vector<zmq::message_t> frames = receive_frames(socket);
    if (frames.empty()) return std::nullopt;
    Decoded decoded = decode(std::move(frames));
    if (decoded.message) return std::move(decoded.message);
    ++rejected_;
    if (decoded.version != 0 && decoded.version != kProtocolVersion) {
      foreign_version_ = decoded.version;
    }
  }
}

void Dealer::set_linger_ms(int ms) {
  socket().set(zmq::sockopt::linger, ms);
  if (second_) second_->set(zmq::sockopt::linger, ms);
}

}  // namespace pushpull

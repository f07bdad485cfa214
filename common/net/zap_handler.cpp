#include "common/net/zap_handler.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "common/base/accept_limit.h"
#include "common/base/error.h"
#include "common/net/data_proof.h"
#include "common/net/endpoint.h"

namespace pushpull {

namespace {

constexpr const char* kEndpoint = "inproc://zeromq.zap.01";  // libzmq sends its requests here
constexpr const char* kDomain = "pushpull";
// ZMQ_ZAP_ENFORCE_DOMAIN: part of libzmq since 4.3.1, but its header names it for drafts only. It
// refuses a connection if no handler answers at kEndpoint.
constexpr int kEnforceDomain = 93;
constexpr size_t kRequestFrames = 6;  // without credentials
constexpr int kPollMs = 1000;
constexpr size_t kMaxNotices = 100;

std::vector<std::string> receive_all(zmq::socket_t& socket) {
  std::vector<std::string> frames;
  zmq::message_t frame;
  while (socket.recv(frame, zmq::recv_flags::dontwait)) {
    frames.push_back(frame.to_string());
    if (!frame.more()) break;
  }
  return frames;
}

// Returns the address of the other end of a connection, "192.0.2.2:5555", or "" if it is closed
// already.
std::string peer_of(int fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    return "";
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return std::string(text.data()) + ":" + std::to_string(ntohs(v4.sin_port));
  }
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
    return "[" + std::string(text.data()) + "]:" + std::to_string(ntohs(v6.sin6_port));
  }
  return "this host";
}

// Makes libzmq close a connection that it has just accepted. The peer's end is reset, so that it
// does not take this for the refusal of a key, which ends the connection in order.
void reset_connection(int fd) {
  const linger at_once{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  shutdown(fd, SHUT_RD);
}

// Drops the port, which differs between the attempts of one peer.
std::string host_in(const std::string& address) { return address.substr(0, address.rfind(':')); }

Refusal denied(const Demand& demand, std::span<const std::string> shown) {
  if (demand.proof == Proof::kChallenge && seeks_another_listener(demand, shown)) {
    return {"listener", "it looks for a process that was at this address before"};
  }
  if (demand.proof == Proof::kChallenge) return {"proof", "it does not prove this run's key"};
  return {"key", "its key is not this job's"};
}

// Returns the refusal for a handshake that failed before libzmq could ask.
Refusal failed_handshake(int event, const Demand& demand) {
  if (event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL) return denied(demand, {});
  return {"no-key", "it closed before it had shown a key"};
}

}  // namespace

// A guarded socket, and the events of its monitor so far.
struct ZapHandler::Watched {
  zmq::socket_t events;
  struct Peer {
    std::string address;
    bool reset = false;  // closed by this process, and counted
  };
  std::map<int, Peer> peers = {};   // by descriptor of the connection
  std::deque<Refusal> failed = {};  // failed handshakes on connections still open
  bool over = false;
};

ZapHandler::ZapHandler(zmq::context_t& context, Demand demand, ConnectionCaps caps)
    : context_(context), demand_(std::move(demand)), caps_(std::move(caps)) {
  keep_descriptors_from(caps_.first_kept());
  if (demand_.proof != Proof::kNone) {
    requests_ = zmq::socket_t(context_, zmq::socket_type::rep);
    requests_.set(zmq::sockopt::linger, 0);
    requests_.bind(kEndpoint);
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { loop(stop); });
}

ZapHandler::~ZapHandler() { stop(); }

int64_t ZapHandler::descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return INT32_MAX;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, INT32_MAX));
}

void ZapHandler::stop() {
  // an unread monitor would block libzmq's I/O thread
  for (void* const socket : guarded_) zmq_socket_monitor(socket, nullptr, 0);
  guarded_.clear();
  if (!thread_.joinable()) return;
  thread_.request_stop();
  wake_.wake();
  thread_.join();
  requests_.close();
  const std::lock_guard lock(mutex_);
  fresh_monitors_.clear();
}

zmq::socket_t ZapHandler::make_monitor(zmq::socket_t& socket) {
  const std::string address = "inproc://pushpull-monitor-" + std::to_string(random_id());
  constexpr int kEvents = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_ACCEPT_FAILED | ZMQ_EVENT_DISCONNECTED |
                          ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                          ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
  PP_ASSERT(zmq_socket_monitor(socket.handle(), address.c_str(), kEvents) == 0);
  zmq::socket_t events(context_, zmq::socket_type::pair);
  events.set(zmq::sockopt::linger, 0);
  events.connect(address);
  return events;
}

void ZapHandler::demand(zmq::socket_t& socket) const {
  socket.set(zmq::sockopt::zap_domain, kDomain);
  const int on = 1;
  if (zmq_setsockopt(socket.handle(), kEnforceDomain, &on, sizeof on) != 0) {
    throw Error(ErrorCode::kFailed,
                "[key] this libzmq cannot refuse connections by itself; install version 4.3.1 or a "
                "newer one, or use --insecure on a network that you trust");
  }
  if (demand_.proof == Proof::kCurve) {
    socket.set(zmq::sockopt::curve_server, true);
    socket.set(zmq::sockopt::curve_secretkey, demand_.server.secret_key);
  } else {
    socket.set(zmq::sockopt::plain_server, true);
  }
}

void ZapHandler::guard(zmq::socket_t& socket) {
  if (demand_.proof != Proof::kNone) demand(socket);
  zmq::socket_t monitor = make_monitor(socket);
  guarded_.push_back(socket.handle());
  const std::lock_guard lock(mutex_);
  fresh_monitors_.push_back(std::move(monitor));
  wake_.wake();
}

void ZapHandler::release(zmq::socket_t& socket) {
  if (std::erase(guarded_, socket.handle()) > 0) zmq_socket_monitor(socket.handle(), nullptr, 0);
}

void ZapHandler::count_refused(const std::string& address, const Refusal& refusal) {
  refused_.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  if (!refusals_.add(host_in(address), refusal, now_ms()) || notices_.size() >= kMaxNotices) return;
  notices_.push_back("[key] refused a connection from " +
                     (address.empty() ? "an unknown address" : address) + ": " + refusal.text);
}

std::string ZapHandler::proof(const std::string& nonce) const {
  return listener_proof(demand_.data_key, demand_.listener, nonce);
}

std::vector<std::string> ZapHandler::take_notices() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notices_, {});
}

// Answers one request of libzmq. Reply: version, request, code, text, user, properties.
void ZapHandler::answer() {
  const std::vector<std::string> request = receive_all(requests_);
  if (request.empty()) return;
  std::optional<PeerRole> role;
  if (request.size() >= kRequestFrames && request[0] == "1.0" && request[2] == kDomain) {
    const std::span shown = std::span(request).subspan(kRequestFrames);
    role = role_of(demand_, request[5], shown);
    if (!role) count_refused(request[3], denied(demand_, shown));
    if (role && is_challenged() &&
        !used_nonces_.add(request[kRequestFrames].substr(0, kNonceDigits))) {
      role.reset();
      count_refused(request[3], {"proof", "it shows the proof of another connection"});
    }
  }
  const std::string id = request.size() > 1 ? request[1] : "";
  const char* const user = !role ? "" : *role == PeerRole::kObserver ? kObserverUser : "member";
  const std::array<std::string, 6> reply{"1.0", id, role ? "200" : "400", role ? "" : "refused",
                                         user,  ""};
  for (size_t i = 0; i < reply.size(); ++i) {
    const auto more = i + 1 < reply.size() ? zmq::send_flags::sndmore : zmq::send_flags::none;
    requests_.send(zmq::buffer(reply[i]), more);
  }
}

// libzmq does not name the peer when a handshake fails. The end of the connection follows the
// failure, so the next end is attributed to it. With several I/O threads the end of another
// connection may intervene.
void ZapHandler::take_events(Watched& watched) {
  for (auto frames = receive_all(watched.events); !frames.empty();
       frames = receive_all(watched.events)) {
    uint16_t event = 0;
    uint32_t value = 0;
    if (frames.size() != 2 || frames[0].size() != sizeof event + sizeof value) continue;
    std::memcpy(&event, frames[0].data(), sizeof event);
    std::memcpy(&value, frames[0].data() + sizeof event, sizeof value);
    if (event == ZMQ_EVENT_MONITOR_STOPPED) watched.over = true;
    // members probe a unix socket before they use it, and no other user can reach it
    if (watched.over || frames[1].starts_with("ipc://")) continue;
    take_event(watched, event, static_cast<int>(value));
  }
}

// fd: of the connection; of ACCEPT_FAILED the error; else of no meaning.
void ZapHandler::take_event(Watched& watched, int event, int fd) {
  if (event == ZMQ_EVENT_ACCEPTED) {
    Watched::Peer& peer = watched.peers[fd];
    peer = {peer_of(fd)};
    if (const Checked refusal = caps_.accepted(fd, now_ms())) {
      count_refused(peer.address, *refusal);
      peer.reset = true;
      reset_connection(fd);
    }
  } else if (event == ZMQ_EVENT_DISCONNECTED) {
    caps_.closed(fd);
    const Watched::Peer peer = std::exchange(watched.peers[fd], {});
    watched.peers.erase(fd);
    if (watched.failed.empty()) return;
    if (!peer.reset) count_refused(peer.address, watched.failed.front());
    watched.failed.pop_front();
  } else if (event == ZMQ_EVENT_ACCEPT_FAILED) {
    if (fd == ECONNABORTED) count_refused("", caps_.no_descriptor());
  } else if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
    caps_.finished(now_ms());
  } else if (demand_.proof != Proof::kNone) {
    watched.failed.push_back(failed_handshake(event, demand_));
  }
}

void ZapHandler::loop(const std::stop_token& stop) {
  std::vector<Watched> watched;
  while (!stop.stop_requested()) {
    std::vector<zmq::pollitem_t> items{{nullptr, wake_.fd(), ZMQ_POLLIN, 0}};
    if (requests_) items.push_back({requests_.handle(), 0, ZMQ_POLLIN, 0});
    for (Watched& each : watched) items.push_back({each.events.handle(), 0, ZMQ_POLLIN, 0});
    poll_sockets(items, kPollMs);
    wake_.clear();
    // handle accepted connections first: their descriptors may soon be reused
    for (Watched& each : watched) take_events(each);
    std::erase_if(watched, [](const Watched& each) { return each.over; });
    if (requests_) answer();
    const std::lock_guard lock(mutex_);
    for (zmq::socket_t& monitor : fresh_monitors_) watched.push_back({std::move(monitor)});
    fresh_monitors_.clear();
  }
}

}  // namespace pushpull

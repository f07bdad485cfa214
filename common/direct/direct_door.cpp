#include "common/direct/direct_door.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "common/base/error.h"
#include "common/job/job.h"
#include "common/net/address.h"
#include "common/net/frames.h"

namespace pushpull {

namespace {

constexpr int kBacklog = 64;
constexpr int64_t kLookMs = 100;  // while no connection is expected
constexpr int kUnacknowledgedMs = 5000;
// Send buffer within one host: the kernel would let it grow to megabytes, which leave the cache between
// write and read.
constexpr int kLocalBufferBytes = 1 << 19;

// The key and the listener's name that both sides use: none with --insecure.
struct Proofs {
  std::string member;
  std::string listener;
};

template <class Shown>
Proofs proofs_of(const Shown& shown, const std::string& nonce) {
  const std::string name = shown.proof == Proof::kChallenge ? shown.listener : "";
  return {direct_member_proof(shown.data_key, name, nonce),
          direct_listener_proof(shown.data_key, name, nonce)};
}

std::string preamble() {
  return {'P',
          'U',
          'S',
          'H',
          'P',
          'L',
          static_cast<char>(kProtocolVersion >> 8),
          static_cast<char>(kProtocolVersion & 0xff)};
}

void set_options(int fd, bool within_host) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnacknowledgedMs, sizeof kUnacknowledgedMs);
  if (within_host) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kLocalBufferBytes, sizeof(int));
}

// An address of a socket, with its length.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  std::string host() {
    std::array<char, NI_MAXHOST> text{};
    const int rc = getnameinfo(get(), length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
    return rc == 0 ? text.data() : "";
  }
  int port() {
    return ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(storage).sin6_port
                                               : reinterpret_cast<sockaddr_in&>(storage).sin_port);
  }
};

// Returns the address of a host and a port. Throws Error(kUnreachable).
SocketAddress socket_address(const std::string& host, int port) {
  const HostLookUp found = look_up_host(host == "*" ? "0.0.0.0" : host);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (found.addresses.empty() || getaddrinfo(found.addresses.front().c_str(),
                                             std::to_string(port).c_str(), &hints, &list) != 0) {
    throw Error(ErrorCode::kUnreachable, "[direct] cannot resolve " + host);
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  SocketAddress out;
  std::memcpy(&out.storage, list->ai_addr, list->ai_addrlen);
  out.length = list->ai_addrlen;
  return out;
}

// A socket that is closed so does not wait for its peer.
void reset(const UniqueFd& socket) {
  const linger at_once{1, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

std::string text_of_errno() { return std::strerror(errno); }

}  // namespace

bool allows_direct(const Job& job) {
  const bool over_tcp = job.transport != Transport::kIpc && job.transport != Transport::kZmq;
  return over_tcp && !job.encrypt_data && !job.strategy.traits().workers_update;
}

// ---- DirectDoor ----

DirectDoor::DirectDoor(const std::string& address, const Demand& demand, Refused refused)
    : demand_(demand), refused_(std::move(refused)) {
  PP_ASSERT(demand.proof != Proof::kCurve);
  SocketAddress at = socket_address(parse_address(address, "listen").host, 0);
  listening_ =
      UniqueFd(::socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listening_.get() < 0 || bind(listening_.get(), at.get(), at.length) != 0 ||
      listen(listening_.get(), kBacklog) != 0 ||
      getsockname(listening_.get(), at.get(), &at.length) != 0) {
    throw Error(ErrorCode::kIo,
                "[direct] cannot listen beside " + address + ": " + text_of_errno());
  }
  port_ = at.port();
}

std::string DirectDoor::offer(uint64_t incarnation, int64_t now_ms) {
  std::erase_if(offers_, [&](const auto& offer) {
    return offer.second.incarnation == incarnation || offer.second.until_ms < now_ms;
  });
  const std::string nonce = new_nonce();
  offers_[nonce] = {incarnation, now_ms + kOfferMs};
  return nonce;
}

std::vector<DirectDoor::Opened> DirectDoor::turn(int64_t now_ms) {
  std::vector<Opened> opened;
  const bool expected = !offers_.empty() || !unproven_.empty();
  if (now_ms - looked_ms_ < (expected ? 1 : kLookMs)) return opened;
  looked_ms_ = now_ms;
  accept_all(now_ms);
  std::erase_if(unproven_, [&](Unproven& peer) {
    const Step step = read(peer, now_ms, opened);
    if (step == Step::kRefused) reset(peer.socket);
    return step != Step::kWaits;
  });
  std::erase_if(offers_, [&](const auto& offer) { return offer.second.until_ms < now_ms; });
  return opened;
}

void DirectDoor::accept_all(int64_t now_ms) {
  for (;;) {
    SocketAddress from;
    UniqueFd socket(
        accept4(listening_.get(), from.get(), &from.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() < 0 && errno == EINTR) continue;
    if (socket.get() < 0) return;
    const std::string address = from.host() + ":" + std::to_string(from.port());
    if (unproven_.size() >= kMaxUnproven) {
      reset(socket);
      refused_(address, {"unfinished", std::to_string(kMaxUnproven) +
                                           " connections have not finished their handshake"});
      continue;
    }
    SocketAddress own;
    getsockname(socket.get(), own.get(), &own.length);
    set_options(socket.get(), own.host() == from.host());
    unproven_.push_back({std::move(socket), address, now_ms + kOfferMs});
  }
}

DirectDoor::Step DirectDoor::read(Unproven& peer, int64_t now_ms, std::vector<Opened>& opened) {
  const ssize_t got = recv(peer.socket.get(), peer.hello.data() + peer.have,
                           peer.hello.size() - peer.have, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR) && now_ms < peer.until_ms) return Step::kWaits;
  if (got <= 0) {
    refused_(peer.address, {"no-key", "it closed before it had shown a key"});
    return Step::kRefused;
  }
  peer.have += static_cast<size_t>(got);
  const std::string hello(peer.hello.data(), peer.have);
  // strangers are refused by their first bytes
  const bool strange = preamble().compare(0, std::min<size_t>(8, hello.size()), hello, 0, 8) != 0;
  if (!strange && peer.have < peer.hello.size()) return Step::kWaits;
  const auto incarnation = strange ? std::nullopt : taken_offer(hello, now_ms);
  if (!incarnation) {
    refused_(peer.address, {"proof", "it does not prove this run's key"});
    return Step::kRefused;
  }
  const std::string answer = proofs_of(demand_, hello.substr(8, kNonceDigits)).listener;
  const auto bytes = static_cast<ssize_t>(answer.size());
  if (::send(peer.socket.get(), answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL) !=
      bytes) {
    return Step::kRefused;
  }
  opened.push_back({*incarnation, std::move(peer.socket)});
  return Step::kProven;
}

// Returns the worker that was offered this connection; it is offered no more.
std::optional<uint64_t> DirectDoor::taken_offer(const std::string& hello, int64_t now_ms) {
  const std::string nonce = hello.substr(8, kNonceDigits);
  if (!same_proof(hello.substr(8 + kNonceDigits), proofs_of(demand_, nonce).member)) {
    return std::nullopt;
  }
  const auto offer = offers_.find(nonce);
  if (offer == offers_.end() || offer->second.until_ms < now_ms) return std::nullopt;
  const uint64_t incarnation = offer->second.incarnation;
  offers_.erase(offer);
  return incarnation;
}

// ---- DirectOpening ----

DirectOpening::DirectOpening(const std::string& address, int port, const std::string& nonce,
                             const Credentials& credentials, int64_t now_ms)
    : hello_(preamble() + nonce + proofs_of(credentials, nonce).member),
      expected_(proofs_of(credentials, nonce).listener),
      until_ms_(now_ms + DirectDoor::kOfferMs) {
  SocketAddress to = socket_address(parse_address(address, "advertise").host, port);
  socket_ = UniqueFd(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket_.get() < 0 ||
      (connect(socket_.get(), to.get(), to.length) != 0 && errno != EINPROGRESS)) {
    throw Error(ErrorCode::kUnreachable, "[direct] no connection to port " + std::to_string(port) +
                                             " of " + to.host() + ": " + text_of_errno());
  }
}

std::optional<UniqueFd> DirectOpening::turn(int64_t now_ms) {
  if (now_ms >= until_ms_) {
    throw Error(ErrorCode::kUnreachable,
                "[direct] the server's port for direct connections does "
                "not answer; does a firewall close it?");
  }
  if (!sent_) {
    pollfd writable{socket_.get(), POLLOUT, 0};
    if (poll(&writable, 1, 0) <= 0) return std::nullopt;
    SocketAddress peer;
    SocketAddress own;
    getpeername(socket_.get(), peer.get(), &peer.length);
    getsockname(socket_.get(), own.get(), &own.length);
    set_options(socket_.get(), own.host() == peer.host());
    const ssize_t sent =
        ::send(socket_.get(), hello_.data(), hello_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent != std::ssize(hello_)) {
      throw Error(
          ErrorCode::kUnreachable,
          "[direct] the server's port for direct connections does not answer: " + text_of_errno());
    }
    sent_ = true;
  }
  std::array<char, kProofDigits> bytes{};
  const ssize_t got =
      recv(socket_.get(), bytes.data(), expected_.size() - answer_.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  if (got <= 0) {
    throw Error(ErrorCode::kRefused, "[direct] the server has closed a direct connection");
  }
  answer_.append(bytes.data(), static_cast<size_t>(got));
  if (answer_.size() < expected_.size()) return std::nullopt;
  if (!same_proof(answer_, expected_)) {
    throw Error(ErrorCode::kRefused, "[direct] the server does not prove this run's key");
  }
  return std::move(socket_);
}

}  // namespace pushpull

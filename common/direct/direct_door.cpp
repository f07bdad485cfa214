#include "common/direct/direct_door.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/error.h"
#include "common/job/job.h"
#include "common/net/address.h"
#include "common/net/frames.h"
#include "common/net/tcp_socket.h"

namespace pushpull {

namespace {

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

// Returns what each message begins with, too: the mark of the protocol, and its version.
std::string preamble() {
  const std::vector<std::byte> head = encode_head({});
  return {reinterpret_cast<const char*>(head.data()), head.size()};
}

//   fd: connected.
void set_options(int fd) {
  send_at_once(fd);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnacknowledgedMs, sizeof kUnacknowledgedMs);
  const bool within_host = local_name(fd).host() == peer_name(fd).host();
  if (within_host) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kLocalBufferBytes, sizeof(int));
}

}  // namespace

bool allows_direct(const Job& job) {
  const bool over_tcp = job.transport != Transport::kIpc && job.transport != Transport::kZmq;
  return over_tcp && !job.encrypt_data && !job.strategy.traits().workers_update;
}

// ---- DirectDoor ----

DirectDoor::DirectDoor(const std::string& address, const Demand& demand, Refused refused)
    : demand_(demand), refused_(std::move(refused)) {
  PP_ASSERT(demand.proof != Proof::kCurve);
  Address at = parse_address(address, "listen");
  at.port = "0";
  listening_ = listen_on(at, "direct");
  port_ = local_name(listening_.get()).port();
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
    if (step == Step::kRefused) close_with_reset(peer.socket);
    return step != Step::kWaits;
  });
  std::erase_if(offers_, [&](const auto& offer) { return offer.second.until_ms < now_ms; });
  return opened;
}

void DirectDoor::accept_all(int64_t now_ms) {
  for (;;) {
    SocketAddress from;
    from.length = sizeof from.storage;
    UniqueFd socket(accept4(listening_.get(), reinterpret_cast<sockaddr*>(&from.storage),
                            &from.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() < 0 && errno == EINTR) continue;
    if (socket.get() < 0) return;
    const std::string address = from.to_string();
    if (unproven_.size() >= kMaxUnproven) {
      close_with_reset(socket);
      refused_(address, {"unfinished", std::to_string(kMaxUnproven) +
                                           " connections have not finished their handshake"});
      continue;
    }
    set_options(socket.get());
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
  Address at = parse_address(address, "advertise");
  at.port = std::to_string(port);
  const SocketAddress to = resolve(at, "direct");
  socket_ = start_connect(to);
  if (socket_.get() < 0) {
    throw Error(ErrorCode::kUnreachable,
                "[direct] no connection to " + to.to_string() + ": " + errno_text());
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
    set_options(socket_.get());
    const ssize_t sent =
        ::send(socket_.get(), hello_.data(), hello_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent != std::ssize(hello_)) {
      throw Error(
          ErrorCode::kUnreachable,
          "[direct] the server's port for direct connections does not answer: " + errno_text());
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

// How a direct connection is opened. The worker asks over its data connection, which is proven; the
// server answers with a port and a nonce; the worker connects and proves the run's data key with
// that nonce (common/net/data_proof.h), and so does the server, before a message passes. Does not
// block, except to resolve a name. One thread.
//
//   hello, worker to server: "PUSHPL", the version in network byte order, the nonce, the proof
//   answer, server to worker: the proof
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/unique_fd.h"
#include "common/net/credentials.h"
#include "common/net/data_proof.h"
#include "common/net/refusals.h"

namespace pushpull {

struct Job;

// Returns whether workers of the job may open direct connections to servers.
bool allows_direct(const Job& job);

inline constexpr size_t kHelloBytes = 8 + kNonceDigits + kProofDigits;

// The server's side: a listening socket, and the connections to it that are not proven yet.
class DirectDoor {
 public:
  // address: of the data port; the door has another port of the same host. demand: as for the data
  // port, not Proof::kCurve. refused: called for each connection that is closed, with its address.
  // Throws Error(kIo).
  using Refused = std::function<void(const std::string& address, const Refusal& refusal)>;
  DirectDoor(const std::string& address, const Demand& demand, Refused refused);

  int port() const { return port_; }
  // Returns a nonce for one connection of this worker. Its earlier ones are worth nothing.
  std::string offer(uint64_t incarnation, int64_t now_ms);
  struct Opened {
    uint64_t incarnation = 0;
    UniqueFd socket;
  };
  // Accepts connections, and returns those that have proven themselves. Call often; most calls only
  // look at the time.
  std::vector<Opened> turn(int64_t now_ms);

  static constexpr int64_t kOfferMs = 5000;  // also from the connection to its proof
  static constexpr size_t kMaxUnproven = 64;

 private:
  struct Offer {
    uint64_t incarnation = 0;
    int64_t until_ms = 0;
  };
  struct Unproven {
    UniqueFd socket;
    std::string address;
    int64_t until_ms = 0;
    std::array<char, kHelloBytes> hello{};
    size_t have = 0;
  };
  enum class Step { kWaits, kProven, kRefused };

  void accept_all(int64_t now_ms);
  Step read(Unproven& peer, int64_t now_ms, std::vector<Opened>& opened);
  std::optional<uint64_t> taken_offer(const std::string& hello, int64_t now_ms);

  const Demand demand_;
  const Refused refused_;
  UniqueFd listening_;
  int port_ = 0;
  std::map<std::string, Offer> offers_;  // by nonce
  std::vector<Unproven> unproven_;
  int64_t looked_ms_ = 0;
};

// The worker's side: one attempt.
class DirectOpening {
 public:
  // address: of the server's data port. port: of its door. Throws Error(kUnreachable).
  DirectOpening(const std::string& address, int port, const std::string& nonce,
                const Credentials& credentials, int64_t now_ms);

  // Returns the socket once both sides have proven themselves, else nullopt. Throws
  // Error(kUnreachable | kRefused) if that fails or takes too long.
  std::optional<UniqueFd> turn(int64_t now_ms);

 private:
  UniqueFd socket_;
  const std::string hello_;
  const std::string expected_;
  const int64_t until_ms_;
  bool sent_ = false;
  std::string answer_;
};

}  // namespace pushpull

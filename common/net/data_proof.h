// The proofs of a data connection that is not encrypted: each side answers a nonce with HMAC-SHA256
// (RFC 2104) under the run's data key, which is never sent (docs/keys.md). Plain functions; any
// thread.
//
// A *listener* is the data port of one life of a process. Proofs name it, so a proof that was heard
// at one port is worth nothing at any other, nor at a process that later gets the same port.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_set>

#include "common/net/credentials.h"
#include "common/net/key_text.h"

namespace pushpull {

// The nonces of connections that a listener has admitted, so that a proof that was heard on the way
// admits no second connection. Keeps the newest `most`. One thread.
class UsedNonces {
 public:
  explicit UsedNonces(size_t most = 65'536) : most_(most) {}

  // Returns false if `nonce` was added before and is still kept.
  bool add(const std::string& nonce) {
    if (!known_.insert(nonce).second) return false;
    order_.push_back(nonce);
    if (order_.size() <= most_) return true;
    known_.erase(order_.front());
    order_.pop_front();
    return true;
  }

 private:
  const size_t most_;
  std::unordered_set<std::string> known_;
  std::deque<std::string> order_;  // oldest first
};

// Decides when a data connection under Proof::kChallenge is opened and whether the process at its
// other end has proven itself (docs/keys.md). A connection that has ended is never resumed: the next
// one has a new nonce. Does no I/O and reads no clock. One thread.
class ServerProof {
 public:
  // credentials: Proof::kChallenge.
  explicit ServerProof(Credentials credentials) : credentials_(std::move(credentials)) {}

  // Returns whether a connection is to be opened now: there is none, or the server has not proven
  // itself within kProofMs.
  bool open_due(int64_t now_ms) const;
  // PLAIN's user name and password of a new connection, and the nonce of its first message.
  struct Opening {
    std::string user;
    std::string password;
    std::string nonce;
  };
  // Records that a connection is opened. nonce: new_nonce().
  Opening open(const std::string& nonce, int64_t now_ms);
  // Records that the connection could not be made, or has ended.
  void on_end(int64_t now_ms);
  // Checks the server's proof. Returns false, and regards the connection as ended, if it is wrong.
  bool on_proof(const std::string& proof, int64_t now_ms);

  bool proven() const { return state_ == State::kProven; }
  // Returns whether there is a connection whose server has not proven itself yet.
  bool waits() const { return state_ == State::kOpen; }

  // Long enough for libzmq's handshake and a server that is busy for some seconds.
  static constexpr int64_t kProofMs = 15'000;
  // Between two attempts. The wait doubles from the first to the second value.
  static constexpr int64_t kMinWaitMs = 50;
  static constexpr int64_t kMaxWaitMs = 1000;

 private:
  enum class State { kNone, kOpen, kProven };

  const Credentials credentials_;
  State state_ = State::kNone;
  std::string nonce_;
  int64_t next_ms_ = INT64_MIN;  // kNone: when to open; kOpen: when to give up
  int64_t wait_ms_ = kMinWaitMs;
};

inline constexpr size_t kNonceDigits = 32;
inline constexpr size_t kProofDigits = 64;

// Returns the name of the listener of the process with this incarnation: 32 hexadecimal digits. The
// name is no secret. The incarnation does not follow from it.
std::string listener_name(uint64_t incarnation);

// Returns 32 random hexadecimal digits.
std::string new_nonce();

// Return the proof of a member that connects to `listener`, and the proof of the listener itself:
// 64 hexadecimal digits. Neither follows from the other without the key.
std::string member_proof(const KeyNumber& data_key, const std::string& listener,
                         const std::string& nonce);
std::string listener_proof(const KeyNumber& data_key, const std::string& listener,
                           const std::string& nonce);

// The same for a direct connection (common/direct), whose nonce the listener has chosen.
std::string direct_member_proof(const KeyNumber& data_key, const std::string& listener,
                                const std::string& nonce);
std::string direct_listener_proof(const KeyNumber& data_key, const std::string& listener,
                                  const std::string& nonce);

// Compares in constant time, so that the duration tells a stranger nothing.
bool same_proof(const std::string& a, const std::string& b);

}  // namespace pushpull

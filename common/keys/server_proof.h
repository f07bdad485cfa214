// Decides when a data connection under Proof::kChallenge is opened and whether the process at its
// other end has proven itself (docs/keys.md). A connection that has ended is never resumed: the next
// one has a new nonce. Does no I/O and reads no clock. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/keys/credentials.h"

namespace pushpull {

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

}  // namespace pushpull

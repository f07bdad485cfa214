#include "common/keys/server_proof.h"

#include <algorithm>

#include "common/keys/data_proof.h"

namespace pushpull {

bool ServerProof::open_due(int64_t now_ms) const {
  return state_ != State::kProven && now_ms >= next_ms_;
}

ServerProof::Opening ServerProof::open(const std::string& nonce, int64_t now_ms) {
  state_ = State::kOpen;
  nonce_ = nonce;
  next_ms_ = now_ms + kProofMs;
  return {challenge_user(nonce, credentials_.listener),
          member_proof(credentials_.data_key, credentials_.listener, nonce), nonce};
}

void ServerProof::on_end(int64_t now_ms) {
  if (state_ == State::kNone) return;
  state_ = State::kNone;
  next_ms_ = now_ms + wait_ms_;
  wait_ms_ = std::min(wait_ms_ * 2, kMaxWaitMs);
}

bool ServerProof::on_proof(const std::string& proof, int64_t now_ms) {
  const bool right =
      state_ == State::kOpen &&
      same_proof(proof, listener_proof(credentials_.data_key, credentials_.listener, nonce_));
  if (!right) {
    on_end(now_ms);
    return false;
  }
  state_ = State::kProven;
  wait_ms_ = kMinWaitMs;
  return true;
}

}  // namespace pushpull

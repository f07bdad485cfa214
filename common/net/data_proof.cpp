#include "common/net/data_proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <span>

#include "common/base/error.h"

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

namespace {

constexpr size_t kDigestBytes = 32;
constexpr size_t kNonceBytes = kNonceDigits / 2;
constexpr const char* kListener = "pushpull v2 listener of incarnation ";
constexpr const char* kMemberProves = "pushpull v2 member to listener";
constexpr const char* kListenerProves = "pushpull v2 listener to member";
constexpr const char* kMemberProvesDirect = "pushpull v2 direct member to listener";
constexpr const char* kListenerProvesDirect = "pushpull v2 direct listener to member";

std::string hex(std::span<const unsigned char> bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string out;
  for (const unsigned char byte : bytes) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

// The parts are separated by zero bytes, which none of them contains.
std::string proof(const KeyNumber& key, const std::string& label, const std::string& listener,
                  const std::string& nonce) {
  const std::string text = label + '\0' + listener + '\0' + nonce;
  std::array<unsigned char, kDigestBytes> out{};
  unsigned int bytes = 0;
  PP_ASSERT(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                 reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data(),
                 &bytes) != nullptr);
  PP_ASSERT(bytes == out.size());
  return hex(out);
}

}  // namespace

std::string listener_name(uint64_t incarnation) {
  const std::string text = kListener + std::to_string(incarnation);
  std::array<unsigned char, kDigestBytes> out{};
  unsigned int bytes = 0;
  PP_ASSERT(EVP_Digest(text.data(), text.size(), out.data(), &bytes, EVP_sha256(), nullptr) == 1);
  return hex(std::span(out).first(kNonceBytes));
}

std::string new_nonce() {
  std::array<unsigned char, kNonceBytes> bytes{};
  PP_ASSERT(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return hex(bytes);
}

std::string member_proof(const KeyNumber& data_key, const std::string& listener,
                         const std::string& nonce) {
  return proof(data_key, kMemberProves, listener, nonce);
}

std::string listener_proof(const KeyNumber& data_key, const std::string& listener,
                           const std::string& nonce) {
  return proof(data_key, kListenerProves, listener, nonce);
}

std::string direct_member_proof(const KeyNumber& data_key, const std::string& listener,
                                const std::string& nonce) {
  return proof(data_key, kMemberProvesDirect, listener, nonce);
}

std::string direct_listener_proof(const KeyNumber& data_key, const std::string& listener,
                                  const std::string& nonce) {
  return proof(data_key, kListenerProvesDirect, listener, nonce);
}

bool same_proof(const std::string& a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace pushpull

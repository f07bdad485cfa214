#include "common/keys/credentials.h"

#include <openssl/crypto.h>
#include <zmq.h>

#include <array>
#include <cstdint>

namespace pushpull {

namespace {

constexpr size_t kPublicBytes = 32;

std::optional<PeerRole> role_of_key(const Demand& demand, const std::string& public_key) {
  if (public_key.size() != kPublicBytes) return std::nullopt;
  std::array<char, 41> text{};
  zmq_z85_encode(text.data(), reinterpret_cast<const uint8_t*>(public_key.data()), kPublicBytes);
  if (demand.member == text.data()) return PeerRole::kMember;
  if (demand.observer == text.data()) return PeerRole::kObserver;
  return std::nullopt;
}

bool is_token(const Demand& demand, const std::string& token) {
  // compares in constant time, so that the duration reveals nothing about the token
  return !demand.token.empty() && token.size() == demand.token.size() &&
         CRYPTO_memcmp(token.data(), demand.token.data(), token.size()) == 0;
}

}  // namespace

std::optional<PeerRole> role_of(const Demand& demand, std::string_view mechanism,
                                std::span<const std::string> shown) {
  if (demand.proof == Proof::kCurve && mechanism == "CURVE" && shown.size() == 1) {
    return role_of_key(demand, shown[0]);
  }
  if (demand.proof == Proof::kToken && mechanism == "PLAIN" && shown.size() == 2 &&
      is_token(demand, shown[1])) {
    return PeerRole::kMember;
  }
  return std::nullopt;
}

}  // namespace pushpull

#include "common/net/credentials.h"

#include <zmq.h>

#include <array>
#include <cstdint>

#include "common/net/data_proof.h"

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

bool proves(const Demand& demand, const std::string& user, const std::string& proof) {
  const std::string nonce = user.substr(0, kNonceDigits);
  return !demand.listener.empty() && nonce.size() == kNonceDigits &&
         user == challenge_user(nonce, demand.listener) &&
         same_proof(proof, member_proof(demand.data_key, demand.listener, nonce));
}

}  // namespace

std::optional<PeerRole> role_of(const Demand& demand, std::string_view mechanism,
                                std::span<const std::string> shown) {
  if (demand.proof == Proof::kCurve && mechanism == "CURVE" && shown.size() == 1) {
    return role_of_key(demand, shown[0]);
  }
  if (demand.proof == Proof::kChallenge && mechanism == "PLAIN" && shown.size() == 2 &&
      proves(demand, shown[0], shown[1])) {
    return PeerRole::kMember;
  }
  return std::nullopt;
}

bool seeks_another_listener(const Demand& demand, std::span<const std::string> shown) {
  return shown.size() == 2 && shown[0].size() == kNonceDigits + demand.listener.size() &&
         shown[0].substr(kNonceDigits) != demand.listener;
}

std::string challenge_user(const std::string& nonce, const std::string& listener) {
  return nonce + listener;
}

}  // namespace pushpull

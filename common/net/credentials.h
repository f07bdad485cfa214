// The credentials that a connecting socket presents, and those that a listening socket demands.
// Plain values, made by `Keys` (common/net/keys.h) and used by sockets (common/net/endpoint.h).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/net/key_text.h"

namespace pushpull {

// A key pair for CURVE (https://rfc.zeromq.org/spec/26), each key as 40 characters of Z85.
struct CurvePair {
  std::string public_key;
  std::string secret_key;
};

// The rights of a connected peer. A member may do everything, an observer may only ask for the
// state of the job (common/net/endpoint.cpp).
enum class PeerRole { kMember, kObserver };

// How the two ends of a connection authenticate each other; both must use the same proof.
enum class Proof {
  kNone,       // --insecure: ZeroMQ's NULL
  kCurve,      // a key on each side; traffic is encrypted
  kChallenge,  // each side answers a nonce (ZeroMQ's PLAIN, data_proof.h); not encrypted
};

// The credentials that a listening socket demands of its peers.
struct Demand {
  Proof proof = Proof::kNone;
  CurvePair server;      // kCurve: shown to connecting peers
  std::string member;    // kCurve: the public key of members
  std::string observer;  // kCurve: that of observers; "" refuses them
  KeyNumber data_key{};  // kChallenge: of the run
  std::string listener;  // kChallenge: name of this listener (data_proof.h); "" admits no peer
};

// The credentials that a connecting socket presents.
struct Credentials {
  Proof proof = Proof::kNone;
  CurvePair own;              // kCurve
  std::string server_public;  // kCurve: the only server that is accepted
  KeyNumber data_key{};       // kChallenge: of the run
  std::string listener;       // kChallenge: name of the only listener that is accepted
  std::string source;         // origin of the key, for messages: a file or a variable

  // Returns the same credentials for a connection to the listener of this name.
  Credentials to(std::string listener_name) const {
    Credentials out = *this;
    out.listener = std::move(listener_name);
    return out;
  }
};

// Returns the role of a peer that presents `shown` with ZeroMQ's `mechanism`, or nullopt if the
// peer is refused.
//   shown: as in a ZAP request (https://rfc.zeromq.org/spec/27). CURVE: the public key, 32 bytes.
//     PLAIN: `challenge_user` and the member's proof. The caller checks that the nonce is
//     new.
std::optional<PeerRole> role_of(const Demand& demand, std::string_view mechanism,
                                std::span<const std::string> shown);

// Returns whether a peer that shows this with PLAIN looks for another listener than the one that
// demands: a process that was at this address before.
bool seeks_another_listener(const Demand& demand, std::span<const std::string> shown);

// PLAIN's user name: the nonce, then the name of the listener.
std::string challenge_user(const std::string& nonce, const std::string& listener);

}  // namespace pushpull

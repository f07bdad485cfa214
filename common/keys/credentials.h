// What a socket shows to whoever it connects to, and what a socket that listens demands. Plain
// values that `Keys` makes (common/keys/keys.h) and that sockets take (common/net/endpoint.h).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace pushpull {

// A pair for CURVE (https://rfc.zeromq.org/spec/26), each key as 40 characters of Z85.
struct CurvePair {
  std::string public_key;
  std::string secret_key;
};

// What the peer of a connection may do: a member everything, an observer what common/net/roles.h
// says.
enum class PeerRole { kMember, kObserver };

// How the two ends of a connection know each other; both must name the same one.
enum class Proof {
  kNone,   // --insecure: ZeroMQ's NULL
  kCurve,  // a key of each side; what passes is encrypted
  kToken,  // the token of the run (ZeroMQ's PLAIN); what passes is not encrypted
};

// What a socket that listens demands of who connects.
struct Demand {
  Proof proof = Proof::kNone;
  CurvePair server;      // kCurve: shown to who connects
  std::string member;    // kCurve: the public key of members
  std::string observer;  // kCurve: that of observers; empty: they are not let in
  std::string token;     // kToken
};

// What a socket that connects shows.
struct Credentials {
  Proof proof = Proof::kNone;
  CurvePair own;              // kCurve
  std::string server_public;  // kCurve: nobody else is spoken to
  std::string token;          // kToken
  std::string source;         // where the key is from, for messages: a file, or a variable
};

// The role of who shows `shown` with ZeroMQ's `mechanism`; empty: it is not let in.
//   shown: as ZAP hands it over (https://rfc.zeromq.org/spec/27): CURVE: the public key, 32 bytes;
//   PLAIN: a name, which says nothing here, and the token.
std::optional<PeerRole> role_of(const Demand& demand, std::string_view mechanism,
                                std::span<const std::string> shown);

}  // namespace pushpull

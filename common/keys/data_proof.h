// The proofs of a data connection that is not encrypted: each side answers a nonce with HMAC-SHA256
// (RFC 2104) under the run's data key, which is never sent (docs/keys.md). Plain functions; any
// thread.
//
// A *listener* is the data port of one life of a process. Proofs name it, so a proof that was heard
// at one port is worth nothing at any other, nor at a process that later gets the same port.
#pragma once

#include <cstdint>
#include <string>

#include "common/keys/key_text.h"

namespace pushpull {

inline constexpr size_t kNonceDigits = 32;

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

// Compares in constant time, so that the duration tells a stranger nothing.
bool same_proof(const std::string& a, const std::string& b);

}  // namespace pushpull

// The key that a program holds, and the credentials that its sockets present and demand for it.
// Constant; any thread.
//
// HKDF-SHA256 (RFC 5869) derives from a secret one CURVE pair for each role and one data key for
// each run. A holder of the secret can play every role. An observer holds its own pair and the server's
// public key, from which no other key can be derived.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/net/credentials.h"
#include "common/net/key_text.h"

namespace pushpull {

class Keys {
 public:
  // No key (--insecure): any peer that reaches a socket may use it.
  Keys() = default;
  // source: origin of the key, for messages.
  Keys(AnyKey key, std::string source);

  bool insecure() const { return !key_; }
  const std::string& source() const { return source_; }

  // For the control connection, which admits members and observers. control_demand throws
  // Error(kUsage) for an observer's key.
  Demand control_demand() const;
  Credentials control_credentials() const;

  // For data connections of a run, and those between workers, which admit members only.
  //   encrypted: true if the job's `encrypt` is `all`; otherwise both sides prove the run's data key.
  //   listener: name of the listening process's port (data_proof.h). For credentials, Credentials::to
  //     sets it.
  // Throw Error(kUsage) for an observer's key.
  Demand data_demand(bool encrypted, uint64_t run_id, const std::string& listener) const;
  Credentials data_credentials(bool encrypted, uint64_t run_id) const;

  // Returns a key that only lets its holder see the status of this key's jobs. Throws Error(kUsage)
  // for an observer's key and without a key.
  ObserverKey observer_key() const;

 private:
  const SecretKey& secret() const;
  KeyNumber data_key(uint64_t run_id) const;

  std::optional<AnyKey> key_;
  std::string source_ = "--insecure";
};

// Returns a new random key.
SecretKey new_secret_key();

}  // namespace pushpull

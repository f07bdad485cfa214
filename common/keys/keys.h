// The key that a program holds, and what its sockets show and demand for it. Constant; any thread.
//
// From a secret, HKDF-SHA256 (RFC 5869) derives one CURVE pair for each role and one token for each
// run. Who holds the secret can play every role. An observer holds its own pair and the server's
// public key, from which nothing else follows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/keys/credentials.h"
#include "common/keys/key_text.h"

namespace pushpull {

class Keys {
 public:
  // No key (--insecure): whoever reaches a socket may use it.
  Keys() = default;
  // source: where the key is from, for messages.
  Keys(AnyKey key, std::string source);

  bool insecure() const { return !key_; }
  const std::string& source() const { return source_; }

  // The control connection. Members and observers are let in.
  // Throws Error(kUsage) where this is an observer's key.
  Demand control_demand() const;
  Credentials control_credentials() const;

  // Data connections of a run, and those between workers. Members are let in.
  //   encrypted: the job's `encrypt` is `all`; otherwise the run's token admits.
  // Throw Error(kUsage) where this is an observer's key.
  Demand data_demand(bool encrypted, uint64_t run) const;
  Credentials data_credentials(bool encrypted, uint64_t run) const;

  // What may be given to who shall only see the status of this key's jobs.
  // Throws Error(kUsage) where this is an observer's key, or none.
  ObserverKey observer_key() const;

 private:
  const SecretKey& secret() const;
  std::string token(uint64_t run) const;

  std::optional<AnyKey> key_;
  std::string source_ = "--insecure";
};

// A key that nobody has yet.
SecretKey new_secret_key();

}  // namespace pushpull

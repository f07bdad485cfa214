// Grants prove to servers that the coordinator allows a worker to push certain micro-batches. The
// coordinator therefore need not tell servers which worker owns a share or lease. A worker that
// takes over a share gets its own grant; a lost worker's grant ends with its membership.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/layout/fixed_tree.h"
#include "common/net/message.h"
#include "common/net/refusals.h"

struct evp_mac_ctx_st;  // OpenSSL's EVP_MAC_CTX

namespace pushpull {

// The worker's part in a group that divides the model. Plain value.
struct GroupPart {
  int stage = 0;
  int64_t attempt = 0;  // of the group; 0 without one
};

// Makes and checks grants. A grant is an HMAC-SHA256 (RFC 2104), truncated to 16 bytes, of the
// worker's incarnation, the micro-batches, the steps, the stage and the attempt. Immutable;
// thread-safe.
class Grants {
 public:
  // key: random bytes, shared only by the coordinator and the servers of this run.
  explicit Grants(std::string key);
  // Returns kKeyBytes random bytes of the system.
  static std::string random_key();

  const std::string& key() const { return key_; }
  // micro_batches: of each step in `steps`.
  wire::Grant make(uint64_t incarnation, Range micro_batches, Range steps,
                   GroupPart part = {}) const;
  // Returns a refusal if the grant does not cover this push.
  Checked check(const wire::Grant& grant, uint64_t incarnation, Range micro_batches, Range steps,
                int stage = 0) const;

 private:
  static constexpr size_t kKeyBytes = 32;

  std::string mac(uint64_t incarnation, Range micro_batches, Range steps, GroupPart part) const;

  struct Free {
    void operator()(evp_mac_ctx_st* context) const;
  };
  using Context = std::unique_ptr<evp_mac_ctx_st, Free>;

  std::string key_;
  Context keyed_;  // the HMAC, initialised with the key
};

}  // namespace pushpull

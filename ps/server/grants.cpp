#include "ps/server/grants.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <sys/random.h>

#include <array>
#include <bit>
#include <cstring>

#include "common/base/error.h"

namespace pushpull {

namespace {

constexpr size_t kMacBytes = 16;

}  // namespace

std::string Grants::random_key() {
  std::string key(kKeyBytes, '\0');
  PP_ASSERT(getrandom(key.data(), key.size(), 0) == static_cast<ssize_t>(key.size()));
  return key;
}

void Grants::Free::operator()(evp_mac_ctx_st* context) const { EVP_MAC_CTX_free(context); }

// Initialises the context once: looking up the algorithm and hashing the key take twice as long as
// the rest.
Grants::Grants(std::string key) : key_(std::move(key)) {
  static EVP_MAC* const algorithm = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
  PP_ASSERT(algorithm != nullptr);
  keyed_.reset(EVP_MAC_CTX_new(algorithm));
  std::string digest = "SHA256";
  const std::array<OSSL_PARAM, 2> parameters{
      OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest.data(), 0),
      OSSL_PARAM_construct_end()};
  PP_ASSERT(keyed_ != nullptr &&
            EVP_MAC_init(keyed_.get(), reinterpret_cast<const unsigned char*>(key_.data()),
                         key_.size(), parameters.data()) == 1);
}

std::string Grants::mac(uint64_t incarnation, Range micro_batches, Range steps,
                        GroupPart part) const {
  static_assert(std::endian::native == std::endian::little);  // the byte order of all messages
  const std::array<uint64_t, 7> fields{incarnation,
                                       std::bit_cast<uint64_t>(micro_batches.lo),
                                       std::bit_cast<uint64_t>(micro_batches.hi),
                                       std::bit_cast<uint64_t>(steps.lo),
                                       std::bit_cast<uint64_t>(steps.hi),
                                       static_cast<uint64_t>(part.stage),
                                       std::bit_cast<uint64_t>(part.attempt)};
  std::array<unsigned char, sizeof fields> text{};
  std::memcpy(text.data(), fields.data(), sizeof fields);
  std::array<unsigned char, EVP_MAX_MD_SIZE> out{};
  size_t bytes = 0;
  const Context context(EVP_MAC_CTX_dup(keyed_.get()));
  PP_ASSERT(context != nullptr && EVP_MAC_update(context.get(), text.data(), text.size()) == 1 &&
            EVP_MAC_final(context.get(), out.data(), &bytes, out.size()) == 1);
  PP_ASSERT(bytes >= kMacBytes);
  return {reinterpret_cast<const char*>(out.data()), kMacBytes};
}

wire::Grant Grants::make(uint64_t incarnation, Range micro_batches, Range steps,
                         GroupPart part) const {
  wire::Grant grant;
  grant.set_attempt(part.attempt);
  grant.set_from_step(steps.lo);
  grant.set_to_step(steps.hi);
  grant.set_mac(mac(incarnation, micro_batches, steps, part));
  return grant;
}

Checked Grants::check(const wire::Grant& grant, uint64_t incarnation, Range micro_batches,
                      Range steps, int stage) const {
  const auto wanted = [&] {
    return "the coordinator's grant of micro-batches " +
           range_text(micro_batches.lo, micro_batches.hi) + " of steps " +
           range_text(steps.lo, steps.hi) + " to this worker";
  };
  if (grant.mac().empty()) return refused("push-grant", wanted(), "none");
  if (steps.lo < grant.from_step() || steps.hi > grant.to_step()) {
    return refused("push-grant", wanted(),
                   "one of steps " + range_text(grant.from_step(), grant.to_step()));
  }
  const std::string expected = mac(incarnation, micro_batches, {grant.from_step(), grant.to_step()},
                                   {stage, grant.attempt()});
  const bool same = grant.mac().size() == expected.size() &&
                    CRYPTO_memcmp(grant.mac().data(), expected.data(), expected.size()) == 0;
  if (same) return {};
  return refused("push-grant", wanted(), "one that the coordinator has not made");
}

}  // namespace pushpull

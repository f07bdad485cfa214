#include "ps/server/grants.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
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

std::string Grants::mac(uint64_t incarnation, Range micro_batches, Range steps) const {
  static_assert(std::endian::native == std::endian::little);  // as all that pushpull sends
  const std::array<uint64_t, 5> fields{incarnation, std::bit_cast<uint64_t>(micro_batches.lo),
                                       std::bit_cast<uint64_t>(micro_batches.hi),
                                       std::bit_cast<uint64_t>(steps.lo),
                                       std::bit_cast<uint64_t>(steps.hi)};
  std::array<unsigned char, sizeof fields> text{};
  std::memcpy(text.data(), fields.data(), sizeof fields);
  std::array<unsigned char, EVP_MAX_MD_SIZE> out{};
  unsigned int bytes = 0;
  PP_ASSERT(HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()), text.data(), text.size(),
                 out.data(), &bytes) != nullptr);
  PP_ASSERT(bytes >= kMacBytes);
  return {reinterpret_cast<const char*>(out.data()), kMacBytes};
}

wire::Grant Grants::make(uint64_t incarnation, Range micro_batches, Range steps) const {
  wire::Grant grant;
  grant.set_from_step(steps.lo);
  grant.set_to_step(steps.hi);
  grant.set_mac(mac(incarnation, micro_batches, steps));
  return grant;
}

Checked Grants::check(const wire::Grant& grant, uint64_t incarnation, Range micro_batches,
                      Range steps) const {
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
  const std::string expected =
      mac(incarnation, micro_batches, {grant.from_step(), grant.to_step()});
  const bool same = grant.mac().size() == expected.size() &&
                    CRYPTO_memcmp(grant.mac().data(), expected.data(), expected.size()) == 0;
  if (same) return {};
  return refused("push-grant", wanted(), "one that the coordinator has not made");
}

}  // namespace pushpull

#include "common/io/sha256.h"

#include <openssl/evp.h>

#include "common/base/error.h"

namespace pushpull {

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  // EVP_sha256() would be looked up on every use: 1.6 us, while hashing 100 bytes takes 0.1 us
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  PP_ASSERT(context_ != nullptr && algorithm != nullptr);
  PP_ASSERT(EVP_DigestInit_ex(context_.get(), algorithm, nullptr) == 1);
}

void Sha256::update(std::span<const std::byte> bytes) {
  PP_ASSERT(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

std::array<std::byte, 32> Sha256::digest() {
  std::array<std::byte, 32> out{};
  unsigned int size = 0;
  PP_ASSERT(
      EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(out.data()), &size) == 1);
  PP_ASSERT(size == out.size());
  return out;
}

std::string Sha256::hex() {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : digest()) {
    text += kDigits[static_cast<size_t>(byte >> 4)];
    text += kDigits[static_cast<size_t>(byte & std::byte{15})];
  }
  return text;
}

}  // namespace pushpull

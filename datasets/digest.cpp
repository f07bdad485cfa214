#include "datasets/digest.h"

#include <openssl/evp.h>

#include <array>

#include "common/base/error.h"

namespace pushpull {

struct Digest::Impl {
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context{EVP_MD_CTX_new()};
};

Digest::Digest() : impl_(std::make_unique<Impl>()) {
  // fails only if the machine's OpenSSL policy forbids SHA-256
  if (impl_->context == nullptr ||
      EVP_DigestInit_ex(impl_->context.get(), EVP_sha256(), nullptr) != 1) {
    throw Error(ErrorCode::kFailed,
                "[data] OpenSSL refuses SHA-256; check the machine's openssl.cnf");
  }
}

Digest::~Digest() = default;

void Digest::add(std::span<const std::byte> bytes) {
  PP_ASSERT(EVP_DigestUpdate(impl_->context.get(), bytes.data(), bytes.size()) == 1);
}

void Digest::add(const std::string& text) {
  add(std::as_bytes(std::span(text.c_str(), text.size() + 1)));
}

std::string Digest::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> raw{};
  unsigned int count = 0;
  PP_ASSERT(EVP_DigestFinal_ex(impl_->context.get(), raw.data(), &count) == 1);
  const char* digits = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < count; ++i) {
    text += digits[raw[i] >> 4];
    text += digits[raw[i] & 15U];
  }
  return text;
}

}  // namespace pushpull

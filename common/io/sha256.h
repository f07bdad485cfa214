// Incremental SHA-256 (OpenSSL EVP). One thread per object.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace pushpull {

class Sha256 {
 public:
  Sha256();

  void update(std::span<const std::byte> bytes);

  // Finishes the hash and returns it. Call either one, once.
  std::array<std::byte, 32> digest();
  std::string hex();  // lower-case hexadecimal

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace pushpull

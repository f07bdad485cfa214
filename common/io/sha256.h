// SHA-256 of bytes that come in parts (OpenSSL EVP). One thread per object.
#pragma once

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

  // Lower-case hex; ends the object's use.
  std::string hex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace pushpull

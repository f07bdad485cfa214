// Incremental SHA-256 over numbers and texts (OpenSSL EVP). Not thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace pushpull {

class Digest {
 public:
  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void add(std::span<const std::byte> bytes);
  // Adds the text and a zero byte, so that "ab" + "c" differs from "a" + "bc".
  void add(const std::string& text);

  // Finishes the digest and returns it in lower-case hexadecimal.
  std::string hex();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pushpull

// SHA-256 of what is fed in, piece by piece (OpenSSL EVP). One thread per object.
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
  // The text and a final zero, so that "ab" + "c" differs from "a" + "bc".
  void add(const std::string& text);

  // Lower-case hex; ends the digest.
  std::string hex();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pushpull

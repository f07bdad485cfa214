// An order-independent hash of a set of records: the sum of their SHA-256 values modulo 2^256
// (AdHash: Bellare and Micciancio, EUROCRYPT 1997). Each process adds up the records that it has
// seen, and the sums add up to the hash of the whole set. Plain data; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace pushpull {

class HashSum {
 public:
  static constexpr size_t kBytes = 32;

  // The hash of the empty set: zero.
  HashSum() = default;
  // `digest` is read as a big-endian number.
  explicit HashSum(std::span<const std::byte, kBytes> digest);
  // The inverse of bytes(). `bytes` must be exactly kBytes long (PP_ASSERT); callers check.
  static HashSum from_bytes(std::string_view bytes);

  // The inverse of hex(). Returns nullopt for any other text.
  static std::optional<HashSum> from_hex(std::string_view hex);

  HashSum& operator+=(const HashSum& other);
  friend bool operator==(const HashSum&, const HashSum&) = default;

  // Returns kBytes bytes, big-endian.
  std::string bytes() const;
  // Returns 64 lower-case hexadecimal digits.
  std::string hex() const;

 private:
  std::array<uint64_t, kBytes / 8> words_{};  // least significant word first
};

}  // namespace pushpull

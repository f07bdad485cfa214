// A hash of a set of records that does not depend on their order: the sum of their SHA-256 modulo
// 2^256 (AdHash: Bellare and Micciancio, EUROCRYPT 1997), so that many processes can each add up
// what they have seen. Plain data; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pushpull {

class HashSum {
 public:
  static constexpr size_t kBytes = 32;

  // Of nothing: zero.
  HashSum() = default;
  // The number with these kBytes big-endian bytes.
  explicit HashSum(std::span<const std::byte, kBytes> digest);
  // What `bytes` has printed. bytes: exactly kBytes of them (PP_ASSERT: callers check).
  static HashSum from_bytes(std::string_view bytes);

  HashSum& operator+=(const HashSum& other);
  friend bool operator==(const HashSum&, const HashSum&) = default;

  // Big-endian.
  std::string bytes() const;
  // Lower-case.
  std::string hex() const;

 private:
  std::array<uint64_t, kBytes / 8> words_{};  // the least significant first
};

}  // namespace pushpull

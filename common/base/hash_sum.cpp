#include "common/base/hash_sum.h"

#include "common/base/error.h"

namespace pushpull {

HashSum::HashSum(std::span<const std::byte, kBytes> digest) {
  for (size_t i = 0; i < kBytes; ++i) {
    uint64_t& word = words_[words_.size() - 1 - i / 8];
    word = word << 8 | static_cast<uint64_t>(digest[i]);
  }
}

HashSum HashSum::from_bytes(std::string_view bytes) {
  PP_ASSERT(bytes.size() == kBytes);
  return HashSum(std::as_bytes(std::span(bytes)).first<kBytes>());
}

std::optional<HashSum> HashSum::from_hex(std::string_view hex) {
  if (hex.size() != 2 * kBytes) return std::nullopt;
  HashSum out;
  for (size_t i = 0; i < hex.size(); ++i) {
    const char c = hex[i];
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c < 'a' || c > 'f')) return std::nullopt;
    uint64_t& word = out.words_[out.words_.size() - 1 - i / 16];
    word = word << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return out;
}

HashSum& HashSum::operator+=(const HashSum& other) {
  uint64_t carry = 0;
  for (size_t i = 0; i < words_.size(); ++i) {
    const uint64_t sum = words_[i] + carry;
    carry = static_cast<uint64_t>(sum < carry);
    words_[i] = sum + other.words_[i];
    carry += static_cast<uint64_t>(words_[i] < sum);
  }
  return *this;
}

std::string HashSum::bytes() const {
  std::string out;
  for (size_t i = words_.size(); i-- > 0;) {
    for (int shift = 56; shift >= 0; shift -= 8) {
      out += static_cast<char>(static_cast<unsigned char>(words_[i] >> shift));
    }
  }
  return out;
}

std::string HashSum::hex() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (size_t i = words_.size(); i-- > 0;) {
    for (int shift = 60; shift >= 0; shift -= 4) out += kDigits[words_[i] >> shift & 15];
  }
  return out;
}

}  // namespace pushpull

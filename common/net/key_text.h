// The text of a key file: one line, a word that names the kind of key, and hexadecimal numbers.
//
//   pushpull-key-1 SECRET    the key of a user or a job; all pairs derive from it
//   pushpull-observer-key-1 OBSERVER_SECRET SERVER_PUBLIC    may only read a job's status
//
// Each number is 32 bytes. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace pushpull {

inline constexpr size_t kKeyBytes = 32;
inline constexpr size_t kMaxKeyTextBytes = 1024;  // a longer file is not a key
using KeyNumber = std::array<unsigned char, kKeyBytes>;

struct SecretKey {
  KeyNumber secret{};
};

// The keys that an observer needs. No other role's key can be derived from them.
struct ObserverKey {
  KeyNumber secret{};         // of the observer's own pair
  KeyNumber server_public{};  // of the job's coordinator
};

using AnyKey = std::variant<SecretKey, ObserverKey>;

// Returns nullopt if `text` is not a key of this version.
std::optional<AnyKey> parse_key(std::string_view text);
// Returns the line that `parse_key` reads, with its line end.
std::string key_text(const AnyKey& key);

}  // namespace pushpull

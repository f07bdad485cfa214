// The text of a key file: one line, a word that says what it is, and hexadecimal numbers.
//
//   pushpull-key-1 SECRET                          a user's or a job's key; all pairs follow from it
//   pushpull-observer-key-1 OBSERVER_SECRET SERVER_PUBLIC    for who may read a job's status
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
inline constexpr size_t kMaxKeyTextBytes = 1024;  // a longer file is no key
using KeyNumber = std::array<unsigned char, kKeyBytes>;

struct SecretKey {
  KeyNumber secret{};
};

// What an observer needs, and nothing that another role's key follows from.
struct ObserverKey {
  KeyNumber secret{};         // of its own pair
  KeyNumber server_public{};  // of the job's coordinator
};

using AnyKey = std::variant<SecretKey, ObserverKey>;

// Empty: `text` is no key of this version.
std::optional<AnyKey> parse_key(std::string_view text);
// A line that `parse_key` takes, with its end.
std::string key_text(const AnyKey& key);

}  // namespace pushpull

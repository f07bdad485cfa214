#include "common/net/key_text.h"

#include <cstdint>

#include "common/base/text.h"

namespace pushpull {

namespace {

constexpr std::string_view kJobWord = "pushpull-key-1";
constexpr std::string_view kObserverWord = "pushpull-observer-key-1";
constexpr std::string_view kDigits = "0123456789abcdef";

// Returns the word before the first space, and removes it and the space from `text`.
std::string_view next_word(std::string_view& text) {
  const size_t end = text.find(' ');
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return word;
}

std::optional<KeyNumber> parse_number(std::string_view text) {
  if (text.size() != 2 * kKeyBytes) return std::nullopt;
  KeyNumber number{};
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t digit = kDigits.find(text[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    number[i / 2] = static_cast<unsigned char>(number[i / 2] << 4U | digit);
  }
  return number;
}

std::string number_text(const KeyNumber& number) {
  std::string text;
  for (const unsigned char byte : number) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

}  // namespace

std::optional<AnyKey> parse_key(std::string_view text) {
  if (text.size() > kMaxKeyTextBytes) return std::nullopt;
  text = trim(text);
  const std::string_view word = next_word(text);
  if (word == kJobWord) {
    const auto secret = parse_number(text);
    return secret ? std::optional<AnyKey>(SecretKey{*secret}) : std::nullopt;
  }
  if (word != kObserverWord) return std::nullopt;
  const auto secret = parse_number(next_word(text));
  const auto server_public = parse_number(text);
  if (!secret || !server_public) return std::nullopt;
  return ObserverKey{*secret, *server_public};
}

std::string key_text(const AnyKey& key) {
  if (const auto* job = std::get_if<SecretKey>(&key)) {
    return std::string(kJobWord) + " " + number_text(job->secret) + "\n";
  }
  const auto& observer = std::get<ObserverKey>(key);
  return std::string(kObserverWord) + " " + number_text(observer.secret) + " " +
         number_text(observer.server_public) + "\n";
}

}  // namespace pushpull

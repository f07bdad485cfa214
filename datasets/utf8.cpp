#include "datasets/utf8.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>

#include "datasets/unicode_ranges.h"

namespace pushpull {

namespace {

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U; }

}  // namespace

CodePoint first_code_point(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {first, 1};
  const size_t length = first < 0xc2   ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  if (length == 0 || length > text.size()) return {};
  uint32_t code = first & (0x7fU >> length);
  for (size_t i = 1; i < length; ++i) {
    if (!continues(text[i])) return {};
    code = (code << 6U) | (static_cast<unsigned char>(text[i]) & 0x3fU);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (overlong || surrogate || code > 0x10ffff) return {};
  return {code, length};
}

void append_utf8(std::string& out, uint32_t code) {
  const auto put = [&out](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0U | (code >> 6U));
    put(0x80U | (code & 0x3fU));
  } else if (code < 0x10000) {
    put(0xe0U | (code >> 12U));
    put(0x80U | ((code >> 6U) & 0x3fU));
    put(0x80U | (code & 0x3fU));
  } else {
    put(0xf0U | (code >> 18U));
    put(0x80U | ((code >> 12U) & 0x3fU));
    put(0x80U | ((code >> 6U) & 0x3fU));
    put(0x80U | (code & 0x3fU));
  }
}

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = first_code_point(text.substr(at)).bytes;
    if (bytes == 0) return at;
    at += bytes;
  }
  return std::nullopt;
}

size_t count_code_points(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return !continues(byte); }));
}

size_t offset_of_code_point(std::string_view text, size_t count) {
  size_t at = 0;
  for (; count > 0; --count) at += first_code_point(text.substr(at)).bytes;
  return at;
}

std::string code_point_text(uint32_t code) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "U+%04X", static_cast<unsigned>(code));
  return text.data();
}

namespace {

bool is_in(std::span<const UnicodeRange> ranges, uint32_t code) {
  const auto after = std::upper_bound(
      ranges.begin(), ranges.end(), code,
      [](uint32_t wanted, const UnicodeRange& range) { return wanted < range.first; });
  return after != ranges.begin() && code <= std::prev(after)->last;
}

bool is_space(uint32_t code) {
  return (code >= 0x09 && code <= 0x0d) || code == 0x20 || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

}  // namespace

CharacterClass class_of(uint32_t code) {
  if (is_space(code)) return CharacterClass::kSpace;
  if (code < 0x80) {
    const uint32_t lower = code | 0x20U;
    if (lower >= 'a' && lower <= 'z') return CharacterClass::kLetter;
    return code >= '0' && code <= '9' ? CharacterClass::kNumber : CharacterClass::kOther;
  }
  if (is_in(kLetterRanges, code)) return CharacterClass::kLetter;
  return is_in(kNumberRanges, code) ? CharacterClass::kNumber : CharacterClass::kOther;
}

namespace {

struct Run {
  size_t bytes = 0;
  size_t last_bytes = 0;  // of the last character
};

// Returns the run of characters of one class at the start of `text`.
Run run_of(CharacterClass kind, std::string_view text) {
  Run run;
  while (run.bytes < text.size()) {
    const CodePoint code = first_code_point(text.substr(run.bytes));
    if (class_of(code.value) != kind) break;
    run.last_bytes = code.bytes;
    run.bytes += code.bytes;
  }
  return run;
}

size_t contraction_bytes(std::string_view text) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.starts_with(ending)) return ending.size();
  }
  return 0;
}

}  // namespace

size_t first_word_bytes(std::string_view text) {
  if (const size_t bytes = contraction_bytes(text); bytes > 0) return bytes;
  const size_t blank = text[0] == ' ' ? 1 : 0;
  if (blank < text.size()) {
    const std::string_view rest = text.substr(blank);
    const CharacterClass kind = class_of(first_code_point(rest).value);
    if (kind != CharacterClass::kSpace) return blank + run_of(kind, rest).bytes;
  }
  // The last space before a word is left to the word if other spaces precede it.
  const Run spaces = run_of(CharacterClass::kSpace, text);
  if (spaces.bytes == text.size() || spaces.bytes == spaces.last_bytes) return spaces.bytes;
  return spaces.bytes - spaces.last_bytes;
}

}  // namespace pushpull

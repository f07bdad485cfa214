#include "datasets/words.h"

#include <algorithm>
#include <span>

#include "datasets/unicode_ranges.h"
#include "datasets/utf8.h"

namespace pushpull {
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

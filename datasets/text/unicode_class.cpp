#include "datasets/text/unicode_class.h"

#include <algorithm>
#include <span>

#include "datasets/text/unicode_ranges.h"

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

}  // namespace pushpull

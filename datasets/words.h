// GPT-2's rules that cut a text into words, within which byte pairs are merged, and the classes of
// characters that they ask for. The regular expression of openai/gpt-2, src/encoder.py, is written
// out as code. Any thread.
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pushpull {

// The classes of characters that GPT-2's rules for words distinguish, by Unicode's general category.
// Any thread.
enum class CharacterClass {
  kLetter,  // categories L*
  kNumber,  // categories N*
  kSpace,   // property White_Space
  kOther,
};

CharacterClass class_of(uint32_t code);

// Returns the bytes of the first word of `text`, which is valid UTF-8 and not empty.
size_t first_word_bytes(std::string_view text);

}  // namespace pushpull

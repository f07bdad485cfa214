// Text as UTF-8: its code points, and the words that byte pairs are made in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pushpull {

// UTF-8 (RFC 3629): reads, writes and checks code points. Any thread.
struct CodePoint {
  uint32_t value = 0;
  size_t bytes = 0;  // 0 if the bytes are not UTF-8
};

// Returns the code point at the start of `text`, which is not empty. Overlong forms, surrogates and
// numbers above U+10FFFF are not UTF-8.
CodePoint first_code_point(std::string_view text);

void append_utf8(std::string& out, uint32_t code);

// Returns the offset of the first byte that is not UTF-8, or nothing if there is none.
std::optional<size_t> find_invalid_utf8(std::string_view text);

// Returns the number of code points in `text`, which is valid.
size_t count_code_points(std::string_view text);

// Returns the offset of code point number `count` in `text`, which is valid and has at least as many.
size_t offset_of_code_point(std::string_view text, size_t count);

// Returns "U+00E9", for messages.
std::string code_point_text(uint32_t code);

// GPT-2's rules that cut a text into words, within which byte pairs are merged, and the classes of
// characters that they ask for. The regular expression of openai/gpt-2, src/encoder.py, is written
// out as code. Any thread.
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+

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

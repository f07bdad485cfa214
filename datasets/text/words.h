// GPT-2's rules that cut a text into words, within which byte pairs are merged. The regular expression
// of openai/gpt-2, src/encoder.py, is written out as code. Any thread.
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
#pragma once

#include <cstddef>
#include <string_view>

namespace pushpull {

// Returns the bytes of the first word of `text`, which is valid UTF-8 and not empty.
size_t first_word_bytes(std::string_view text);

}  // namespace pushpull

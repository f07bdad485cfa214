// GPT-2's alphabet: a printable character for each byte, so that a vocabulary of byte strings can be
// written as text (`bytes_to_unicode` in openai/gpt-2, src/encoder.py). Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pushpull {

// Returns the bytes in the order of their characters: GPT-2's first 256 ids.
const std::array<uint8_t, 256>& bytes_in_order();

// Writes each byte as its character.
std::string to_alphabet(std::string_view bytes);

// Returns the bytes of a text in the alphabet, or nothing if a character is not part of it.
std::optional<std::string> from_alphabet(std::string_view text);

}  // namespace pushpull

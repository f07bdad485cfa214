// Strict parsing of numbers: the whole text must be a number, without '+', spaces, inf, nan or
// locale. Printing gives the shortest text that parses back to the same bits. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pushpull {

// Returns nullopt if `text` is not a whole number or does not fit the type.
std::optional<int64_t> parse_int64(std::string_view text);
std::optional<uint64_t> parse_uint64(std::string_view text);

// Reads decimal or scientific notation ("0.1", "1e-3"). Returns nullopt for anything else and on
// overflow.
std::optional<double> parse_real(std::string_view text);

std::string print_real(double value);

}  // namespace pushpull

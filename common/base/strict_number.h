// Numbers as text, strictly: the whole text or nothing, no sign '+', no spaces, no inf or nan,
// no locale. Printing is the shortest text that reads back to the same bits. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pushpull {

// Empty where the text is not a whole number or does not fit the type.
std::optional<int64_t> parse_int64(std::string_view text);
std::optional<uint64_t> parse_uint64(std::string_view text);

// Decimal or scientific ("0.1", "1e-3"). Empty for anything else, and where the value overflows.
std::optional<double> parse_real(std::string_view text);

std::string print_real(double value);

}  // namespace pushpull

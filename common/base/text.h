// Text from users: trims it, checks it, reads numbers in it, makes it safe to print in a one-line
// message, and finds the name that is probably meant. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pushpull {

// Strict parsing of numbers: the whole text must be a number, without '+', spaces, inf, nan or
// locale. Printing gives the shortest text that parses back to the same bits. Any thread.

// Returns nullopt if `text` is not a whole number or does not fit the type.
std::optional<int64_t> parse_int64(std::string_view text);
std::optional<uint64_t> parse_uint64(std::string_view text);

// Reads decimal or scientific notation ("0.1", "1e-3"). Returns nullopt for anything else and on
// overflow.
std::optional<double> parse_real(std::string_view text);

std::string print_real(double value);

// Finds the name that a user most likely meant by a mistyped one: "did you mean ...?". Any thread.

// Returns the entry of `names` closest to `typed`: the one with the smallest edit distance
// (Levenshtein), a name that `typed` abbreviates, or our name for another trainer's term
// ("learning-rate"). Ignores case and underscores. Returns "" if no name is close.
std::string nearest_name(const std::string& typed, const std::vector<std::string>& names);

// Returns "; did you mean NAME?" with `prefix` before the name, or "".
std::string did_you_mean(const std::string& typed, const std::vector<std::string>& names,
                         const std::string& prefix = "");

// Returns `text` without spaces, tabs and line ends at either end.
std::string_view trim(std::string_view text);

// Returns true for UTF-8 without control characters. Such text fits in one line of a job file, in
// JSON and in a protobuf `string`.
bool is_plain_text(std::string_view text);

// Makes `text` safe to print in a message: escapes control characters and invalid bytes as \xNN and
// cuts it after about `max_bytes`.
std::string printable(std::string_view text, size_t max_bytes = 80);

// Messages never cut a path: the end of a path identifies the file.
inline constexpr size_t kMaxPathBytes = 4096;

// Formats a duration as "1:02:03" or "2:03" (hours, minutes, whole seconds), or as "?" if it is
// negative or not finite.
std::string clock_text(double seconds);

// Returns 16 lower-case hexadecimal digits.
std::string hex_text(uint64_t number);

// Returns `noun` with its count, in the plural with "s" unless `count` is 1: "1 server", "2
// servers".
std::string plural(int64_t count, std::string_view noun);

}  // namespace pushpull

// Text from users: trims it, checks it, and makes it safe to print in a one-line message. Any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pushpull {

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

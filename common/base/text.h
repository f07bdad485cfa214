// Text from people: trimmed, checked, made safe to print in a one-line message. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pushpull {

// Without spaces, tabs and line ends at both ends.
std::string_view trim(std::string_view text);

// True for UTF-8 without control characters: what fits in one line of a job file, in JSON and in
// protobuf's `string`.
bool is_plain_text(std::string_view text);

// For messages: control characters and stray bytes as \xNN, cut after about `max_bytes`.
std::string printable(std::string_view text, size_t max_bytes = 80);

// A path is never cut in a message: its end is what tells.
inline constexpr size_t kMaxPathBytes = 4096;

// "1:02:03" or "2:03": whole seconds as hours, minutes and seconds; "?" for what is no duration.
std::string clock_text(double seconds);

}  // namespace pushpull

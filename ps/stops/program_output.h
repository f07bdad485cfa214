// Runs a short program and reads its output, with a deadline. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pushpull {

// Returns the standard output of the program, at most 64 KiB, or nothing with the reason in `why`:
// it cannot be executed, it ends with another code than 0, or it has not ended after `limit_ms` and
// is killed. Its standard error goes nowhere.
//   words: the program, found in PATH, and its arguments.
std::optional<std::string> output_of(const std::vector<std::string>& words, int64_t limit_ms,
                                     std::string& why);

}  // namespace pushpull

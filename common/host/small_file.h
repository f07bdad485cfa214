// Reads small files of /proc and /sys. Plain functions; any thread.
#pragma once

#include <optional>
#include <string>

namespace pushpull {

// Returns at most the first 64 KiB of a file, or nullopt if it cannot be read.
std::optional<std::string> read_small_file(const std::string& path);

}  // namespace pushpull

// The kernel's small files, and the lists of logical CPUs in them, as taskset(1) writes them, too:
// "0-3,8". Plain functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pushpull {

// Reads small files of /proc and /sys. Plain functions; any thread.

// Returns at most the first 64 KiB of a file, or nullopt if it cannot be read.
std::optional<std::string> read_small_file(const std::string& path);

// Returns the CPUs in ascending order, each once. Returns nullopt for other text, and for a number above 65,535; an
// empty text is an empty list.
std::optional<std::vector<int>> parse_cpu_list(std::string_view text);

// Returns "0-3,8" for ascending numbers.
std::string cpu_list_text(const std::vector<int>& cpus);

}  // namespace pushpull

// Lists of logical CPUs as the kernel and taskset(1) write them: "0-3,8". Plain functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pushpull {

// Returns the CPUs in ascending order, each once. Returns nullopt for other text, and for a number above 65,535; an
// empty text is an empty list.
std::optional<std::vector<int>> parse_cpu_list(std::string_view text);

// Returns "0-3,8" for ascending numbers.
std::string cpu_list_text(const std::vector<int>& cpus);

}  // namespace pushpull

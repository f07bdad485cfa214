// The prefix of each line that a task of `pushpull run --over` passes on: "task 3 on n1 | ". Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pushpull {

inline std::string task_prefix(int64_t rank, const std::string& host) {
  return "task " + std::to_string(rank) + " on " + host + " | ";
}

// Returns whether a task has written this line, and not the launcher of its step.
inline bool is_line_of_task(std::string_view line) {
  const size_t end = line.find(" | ");
  return line.starts_with("task ") && end != std::string_view::npos && end < 300;
}

}  // namespace pushpull

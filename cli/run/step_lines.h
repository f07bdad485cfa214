// Reads the output of a step, line by line: decides what users see, and finds what the launcher and its
// tasks report. One thread.
#pragma once

#include <csignal>
#include <cstdint>
#include <string>
#include <string_view>

#include "cli/run/step_launcher.h"

namespace pushpull {

// The lines that a task of `pushpull run --over` writes for it: a prefix, "task 3 on n1 | ", and text.
// Any thread.
inline std::string task_prefix(int64_t rank, const std::string& host) {
  return "task " + std::to_string(rank) + " on " + host + " | ";
}

// Returns whether a task has written this line, and not the launcher of its step.
inline bool is_line_of_task(std::string_view line) {
  const size_t end = line.find(" | ");
  return line.starts_with("task ") && end != std::string_view::npos && end < 300;
}

// A task's line, after its prefix, when a signal has told it to end.
inline constexpr std::string_view kToldToEnd = "[task] told to end by ";

// Returns the signal of such a line, or 0 for others.
inline int told_to_end(std::string_view line) {
  const size_t at = line.find(kToldToEnd);
  if (!is_line_of_task(line) || at == std::string_view::npos) return 0;
  const std::string_view name = line.substr(at + kToldToEnd.size());
  if (name == "SIGTERM") return SIGTERM;
  if (name == "SIGINT") return SIGINT;
  return name == "SIGHUP" ? SIGHUP : 0;
}

class StepLines {
 public:
  struct Reading {
    bool show = false;
    bool of_task = false;  // the line begins with the name of its task
    int signal = 0;        // the batch system has sent it to the tasks: the job must stop
    std::string refusal;   // why the launcher refuses, or ""
  };

  explicit StepLines(const StepLauncher& launcher) : launcher_(launcher) {}

  // A launcher explains a refusal at length: its reason in one line takes the place of the rest.
  Reading take(const std::string& text);

 private:
  const StepLauncher& launcher_;
  bool refused_ = false;
};

}  // namespace pushpull

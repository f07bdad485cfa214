// The output of several processes as one view, and the lines of a step among it.
#pragma once

#include <csignal>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/run/step_launcher.h"

namespace pushpull {

// Merges the output of many processes. The coordinator's standard output stays standard output; all
// other lines go to standard error, prefixed with their source. Decides what is shown; the launcher
// writes it. One thread.

// Splits a stream of bytes into lines. Splits longer lines at kMaxLine, so that a child that writes
// no newline cannot fill the memory.
class LineSplitter {
 public:
  static constexpr size_t kMaxLine = 16384;

  // Returns the lines completed by `bytes`, without their newlines.
  std::vector<std::string> feed(std::string_view bytes);
  // Returns the incomplete last line, or "". Call once, at the end of the stream.
  std::string rest();

 private:
  std::string pending_;
};

struct Output {
  bool to_stderr = false;
  std::string bytes;
  friend bool operator==(const Output&, const Output&) = default;
};

class MergedView {
 public:
  //   repeats: shows text that another source has already shown, such as the output of users'
  //   programs; after release(), only that of the cause.
  explicit MergedView(bool repeats = false) : repeats_(repeats) {}

  // Takes the coordinator's standard output. Passes on whole lines, and at once a progress line
  // (one with a '\r').
  void progress(std::string_view bytes, std::vector<Output>& out);
  // Ends the coordinator's stream: shows the rest, and ends its line.
  void end_progress(std::vector<Output>& out);

  // Takes a line of `source` (one number per slot), shown as `prefix` + text. Without `repeats`,
  // drops text that another source has already shown.
  void line(size_t source, const std::string& prefix, const std::string& text,
            std::vector<Output>& out);
  // Takes a line of the coordinator. It is never held, and dropped only if another source has shown its
  // text, or the launcher will.
  void line_of_server(const std::string& text, std::vector<Output>& out);
  // Takes a line of the launcher. It is never held or dropped.
  void say(const std::string& text, std::vector<Output>& out);
  // Drops all later lines of processes that contain this text: the launcher's own lines tell it.
  void will_say(const std::string& text) { told_.push_back(text); }

  // Holds all later lines of `line`, until the cause of a failure is known.
  void hold() { holding_ = true; }
  // Shows the held lines: all lines of `cause`, and from now on kLinesAfterTheEnd lines of the
  // others.
  static constexpr int64_t kLinesAfterTheEnd = 3;
  void release(size_t cause, std::vector<Output>& out);
  int64_t left_out() const { return left_out_; }

 private:
  struct Line {
    size_t source;
    std::string prefix;
    std::string text;
  };
  bool is_repeat(const Line& line);
  bool is_told(const std::string& text) const;
  void show(const Line& line, std::vector<Output>& out);
  void show_of_others(const Line& line, std::vector<Output>& out);

  const bool repeats_;
  std::string unfinished_;       // of the coordinator's standard output
  bool progress_shown_ = false;  // the cursor is on or after a progress line
  std::deque<Line> recent_;      // the latest kRemembered lines
  std::vector<Line> held_;
  bool holding_ = false;
  bool ending_ = false;
  size_t cause_ = 0;               // once ending
  std::vector<std::string> told_;  // by the launcher
  int64_t allowance_ = 0;          // lines of others that may still be shown after release()
  int64_t left_out_ = 0;
};

// Reads the output of a step, line by line: decides what users see, and finds what the launcher and its
// tasks report. One thread.

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

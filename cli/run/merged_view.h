// Merges the output of many processes. The coordinator's standard output stays standard output; all
// other lines go to standard error, prefixed with their source. Decides what is shown; the launcher
// writes it. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pushpull {

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
  // Takes a line of the launcher or the coordinator. It is never held or dropped.
  void say(const std::string& text, std::vector<Output>& out);

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
  void show(const Line& line, std::vector<Output>& out);
  void show_of_others(const Line& line, std::vector<Output>& out);

  const bool repeats_;
  std::string unfinished_;       // of the coordinator's standard output
  bool progress_shown_ = false;  // the cursor is on or after a progress line
  std::deque<Line> recent_;      // the latest kRemembered lines
  std::vector<Line> held_;
  bool holding_ = false;
  bool ending_ = false;
  size_t cause_ = 0;       // once ending
  int64_t allowance_ = 0;  // lines of others that may still be shown after release()
  int64_t left_out_ = 0;
};

}  // namespace pushpull

// One view of many processes' output. Standard output is what the coordinator says there; every
// other line goes to standard error, marked with who said it. Decides what is shown, writes
// nothing: the launcher does. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pushpull {

// Cuts a stream of bytes into lines. A line longer than kMaxLine is cut there, so that a child
// without line ends cannot fill the memory.
class LineSplitter {
 public:
  static constexpr size_t kMaxLine = 16384;

  // The lines that are complete now, without their ends.
  std::vector<std::string> feed(std::string_view bytes);
  // The last line where it has no end; empty otherwise. To be asked once, at the stream's end.
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
  // What the coordinator wrote to its standard output: whole lines, and a progress line (it has a
  // '\r') at once.
  void progress(std::string_view bytes, std::vector<Output>& out);
  // Its stream has ended: shows what still waits, and ends the line.
  void end_progress(std::vector<Output>& out);

  // A line of `source` (one number per slot), shown as `prefix` + text. What another source has
  // said with the same words is not repeated.
  void line(size_t source, const std::string& prefix, const std::string& text,
            std::vector<Output>& out);
  // A line of the launcher itself or of the coordinator: never held, never left out.
  void say(const std::string& text, std::vector<Output>& out);

  // A failure was seen, and who caused it will be known soon: keeps the lines of `line` back.
  void hold() { holding_ = true; }
  // Shows the kept lines: all of `cause`, of the others kLinesAfterTheEnd, from now on.
  static constexpr int64_t kLinesAfterTheEnd = 3;
  void release(size_t cause, std::vector<Output>& out);
  int64_t left_out() const { return left_out_; }

 private:
  struct Line {
    size_t source;
    std::string prefix;
    std::string text;
  };
  bool said_by_another(const Line& line);
  void show(const Line& line, std::vector<Output>& out);
  void show_of_others(const Line& line, std::vector<Output>& out);

  std::string unfinished_;       // of the coordinator's standard output
  bool progress_shown_ = false;  // the cursor stands on or behind a progress line
  std::deque<Line> said_;        // the newest kRemembered lines
  std::vector<Line> held_;
  bool holding_ = false;
  bool ending_ = false;
  int64_t allowance_ = 0;  // lines of others that may still be shown, once ending
  int64_t left_out_ = 0;
};

}  // namespace pushpull

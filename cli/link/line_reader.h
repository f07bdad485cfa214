// Splits a descriptor's byte stream into lines: commands for the proxy, typed or from a file. One
// thread.
#pragma once

#include <optional>
#include <string>

namespace pushpull {

class LineReader {
 public:
  // fd: borrowed; -1 if there is no input.
  explicit LineReader(int fd) : fd_(fd) {}

  // Reads once. Returns false at the end of the input; a last line without a newline still counts.
  bool read_some();
  // Returns the next complete line without its newline, or empty if there is none yet.
  std::optional<std::string> next();

 private:
  int fd_;
  std::string text_;  // received, not yet returned by `next`
};

}  // namespace pushpull

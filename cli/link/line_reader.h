// Lines out of a descriptor that may hand over any piece of them at a time: commands for the proxy,
// typed or from a file. One thread.
#pragma once

#include <optional>
#include <string>

namespace pushpull {

class LineReader {
 public:
  // fd: borrowed; -1: there is nothing to read.
  explicit LineReader(int fd) : fd_(fd) {}

  // Reads once. False: there will be no more, and what has come last is a line even without its
  // end.
  bool read_some();
  // The next whole line, without its end; empty: none yet.
  std::optional<std::string> next();

 private:
  int fd_;
  std::string text_;  // from the first line that `next` has not handed out
};

}  // namespace pushpull

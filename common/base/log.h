// Prints one line per message to standard error (common/base/console.h). Each line is a single
// write(), so that lines of several processes do not mix. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace pushpull {

class Log {
 public:
  // Every line begins with the argument: "server 0" or "worker 2". rename() sets it once the rank
  // is known; no other thread may log at that time.
  explicit Log(std::string who) : who_(std::move(who)) {}
  void rename(std::string who) { who_ = std::move(who); }

  void info(std::string_view text) const { write("", text); }
  void warn(std::string_view text) const { write("warning: ", text); }
  void error(std::string_view text) const { write("error: ", text); }

 private:
  void write(std::string_view level, std::string_view text) const;
  std::string who_;
};

}  // namespace pushpull

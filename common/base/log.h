// One line per message on stderr, written by one call so that lines of several processes do not
// mix. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace pushpull {

class Log {
 public:
  // who: "server 0", "worker 2"; printed in front of every line. May be changed once the rank is
  // known, by the only thread that logs then.
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

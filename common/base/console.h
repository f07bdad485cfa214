// Output for users that never blocks the program, even if a terminal is stopped, a pipe has no
// reader or a file system hangs. Any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace pushpull {

// Prints one line per message to standard error (common/base/console.h). Each line is a single
// write(), so that lines of several processes do not mix. Any thread.
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

class Console {
 public:
  // Duplicates the descriptors. If both refer to the same file, the order of the texts is kept.
  Console(int out_fd, int err_fd);

  // Never blocks. Text that does not fit the queue is dropped; a later line reports how many texts
  // are missing.
  void out(std::string_view text);
  void err(std::string_view text);
  // Waits until all text is written, at most 5 s for each stream.
  void flush();

 private:
  class Stream;
  std::shared_ptr<Stream> out_;
  std::shared_ptr<Stream> err_;
};

// Returns whether `fd` is a terminal whose lines can be overwritten. That of mpirun is none: it gives its
// tasks a terminal and writes all they print to its own output.
bool is_terminal(int fd);

// Writes to this process's STDOUT_FILENO or STDERR_FILENO: through its console if it has one, else
// directly.
void print(int fd, std::string_view text);
// Makes `print` pass its text, whole lines, to `sink`, in place of the process's streams. Threads
// call `sink` one at a time. Returns once no thread is in the former sink; an empty sink restores
// the streams. A library owns no stream: the program around it decides where its lines go.
using PrintSink = std::function<void(int fd, std::string_view text)>;
void set_print_sink(PrintSink sink);
// Flushes the process's console, if there is one. Call before _exit.
void flush_output();

// Makes `print` write through a console. Construct it first in main.
class ProcessConsole {
 public:
  ProcessConsole();
  ~ProcessConsole() { flush_output(); }
  ProcessConsole(const ProcessConsole&) = delete;
  ProcessConsole& operator=(const ProcessConsole&) = delete;
};

}  // namespace pushpull

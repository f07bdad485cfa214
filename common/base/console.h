// Output for people that must not wait for whoever reads it: a terminal that is stopped, a pipe that
// nobody reads, a file system that does not answer. Any thread.
#pragma once

#include <memory>
#include <string_view>

namespace pushpull {

class Console {
 public:
  // The descriptors are duplicated. Where both are one file, the order of the texts is kept.
  Console(int out_fd, int err_fd);

  // Does not wait. Text that finds no room is left out, and a line says how much once there is room.
  void out(std::string_view text);
  void err(std::string_view text);
  // Waits until all is written, some seconds at most.
  void flush();

 private:
  class Stream;
  std::shared_ptr<Stream> out_;
  std::shared_ptr<Stream> err_;
};

// To this process's STDOUT_FILENO or STDERR_FILENO: over its console while there is one, else at once.
void print(int fd, std::string_view text);
// Flushes the process's console, if there is one: before _exit.
void flush_output();

// Gives the process its console: first thing in main, until its end.
class ProcessConsole {
 public:
  ProcessConsole();
  ~ProcessConsole() { flush_output(); }
  ProcessConsole(const ProcessConsole&) = delete;
  ProcessConsole& operator=(const ProcessConsole&) = delete;
};

}  // namespace pushpull

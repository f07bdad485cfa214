// A process started by the launcher, with pipes for its output. It dies with the launcher: the
// kernel sends it SIGTERM when its parent is gone, however that happened (prctl(2),
// PR_SET_PDEATHSIG). It leads its own process group, so that the terminal's Ctrl-C reaches only the
// launcher, which forwards it once. One thread, the one that started it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "cli/run/supervisor.h"
#include "common/base/unique_fd.h"

namespace pushpull {

class Child {
 public:
  // The file descriptor of a child's end of the announcement pipe.
  static constexpr int kAnnounceFd = 3;

  // Starts `program` with `arguments` (without its own name), with empty standard input and default
  // signal handlers.
  //   announce: passes kAnnounceFd to write to.
  // Throws Error(kFailed) naming program and reason.
  Child(const std::string& program, const std::vector<std::string>& arguments, bool announce);
  // Kills the process if it still runs, and waits for it.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  // Sends a signal to the process group.
  void send(int signal) const;
  // How the process ended, reported once; empty while it runs.
  std::optional<Ending> poll_end();

  // Non-blocking reading ends; reset them at end of file.
  UniqueFd out;
  UniqueFd err;
  UniqueFd announcement;

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
};

// Appends the available bytes, at most one buffer full. False at the end of the stream.
bool read_available(int fd, std::string& bytes);

}  // namespace pushpull

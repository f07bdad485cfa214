// A process that the launcher started, with pipes for its output. It dies with the launcher: the
// kernel sends it SIGTERM when its parent is gone, however that happened (prctl(2),
// PR_SET_PDEATHSIG). It leads a process group of its own, so that a Ctrl-C of the terminal reaches
// the launcher alone, which forwards it once. One thread, the one that started it.
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
  // Descriptor under which a child finds its end of the announcement pipe.
  static constexpr int kAnnounceFd = 3;

  // Starts `program` with `arguments` (without its own name), standard input from nothing, default
  // signals. announce: gives it kAnnounceFd to write to. Throws Error(kFailed) naming program and
  // reason.
  Child(const std::string& program, const std::vector<std::string>& arguments, bool announce);
  // Kills what still runs, and waits for it.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  // To the process and what it may have started.
  void send(int signal) const;
  // Its end, once; nothing while it runs.
  std::optional<Ending> poll_end();

  // Reading ends, not blocking; reset them at their end of file.
  UniqueFd out;
  UniqueFd err;
  UniqueFd announcement;

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
};

// Reads what is there into `bytes`, at most one buffer full. False at the end of the stream.
bool read_available(int fd, std::string& bytes);

}  // namespace pushpull

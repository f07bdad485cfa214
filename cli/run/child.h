// A process started by the launcher, with pipes for its output. The kernel sends it SIGTERM when
// the launcher dies for any reason (prctl(2), PR_SET_PDEATHSIG), unless its plan forbids it. It leads its own process group, so
// that the terminal's Ctrl-C reaches only the launcher, which forwards it once. Use only on the
// thread that started it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "cli/run/ending.h"
#include "cli/run/start_plan.h"
#include "common/base/unique_fd.h"

namespace pushpull {

class Child {
 public:
  // The child's file descriptor of the announcement pipe.
  static constexpr int kAnnounceFd = 3;

  // Starts a program, with empty standard input and default signal handlers.
  //   announce: opens kAnnounceFd in the child, for writing.
  // Throws Error(kFailed) with program and reason.
  Child(const StartPlan& plan, bool announce);
  // Kills the process group if the process still runs, and waits for the process.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  // Sends a signal to the process group.
  void send(int signal) const;
  // Returns how the process ended, once; empty while it runs or after that. Kills its group then:
  // processes that it has started and left behind.
  std::optional<Ending> poll_end();

  // Non-blocking reading ends. Reset them at end of file.
  UniqueFd out;
  UniqueFd err;
  UniqueFd announcement;

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
};

// Replaces `bytes` with the available bytes, at most 64 KiB. Returns false at the end of the
// stream.
bool read_available(int fd, std::string& bytes);

}  // namespace pushpull

#include "cli/bench/link.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "common/base/error.h"
#include "common/base/process.h"

namespace pushpull::floors {

Child::Child(const std::function<int()>& body) : pid_(fork()) {
  if (pid_ < 0) {
    throw Error(ErrorCode::kFailed, std::string("[floors] cannot fork: ") + std::strerror(errno));
  }
  if (pid_ > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int code = 1;
  try {
    code = body();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  _exit(code);  // the parent's buffers and exit handlers must not run here
}

Child::~Child() {
  const double deadline = now_seconds() + kDeadlineSeconds;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (now_seconds() > deadline) {
      std::fprintf(stderr, "[floors] process %d did not end within %d s; killed\n",
                   static_cast<int>(pid_), kDeadlineSeconds);
      kill(pid_, SIGKILL);
      waitpid(pid_, &status, 0);
      break;
    }
    usleep(500);
  }
}

}  // namespace pushpull::floors

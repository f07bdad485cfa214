#include "cli/run/group_guard.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <string>

#include "common/base/error.h"
#include "common/base/process.h"

namespace pushpull {
namespace {

constexpr int kPipe = 3;  // the guard's only descriptor from the launcher

// Keeps no file of the launcher open: a reader of its output waits for the end.
void keep_only(int pipe) {
  const int null = open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
  if (pipe != kPipe) dup2(pipe, kPipe);
  close_range(kPipe + 1, ~0U, 0);
}

// Returns false at the end of the pipe.
bool read_message(pid_t& message) {
  ssize_t n = 0;
  do {
    n = read(kPipe, &message, sizeof message);
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(sizeof message);
}

[[noreturn]] void guard(int pipe, int64_t leave_ms) {
  setsid();  // signals for the launcher's group or terminal are not for the guard
  keep_only(pipe);
  std::map<pid_t, UniqueFd> leaders;  // a descriptor becomes readable when its process ends
  for (pid_t message = 0; read_message(message);) {
    if (message > 0) {
      leaders[message] = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, message, 0)));
    } else {
      leaders.erase(-message);
    }
  }
  const int64_t deadline_ms = now_ms() + leave_ms;
  for (const auto& [group, leader] : leaders) {
    pollfd end{leader.get(), POLLIN, 0};
    const int64_t left_ms = std::max<int64_t>(0, deadline_ms - now_ms());
    if (leader.get() >= 0) poll(&end, 1, static_cast<int>(left_ms));
    kill(-group, SIGKILL);
  }
  _exit(0);
}

}  // namespace

GroupGuard::GroupGuard(int64_t leave_ms) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) == 0) {
    const UniqueFd reader(ends[0]);
    pipe_ = UniqueFd(ends[1]);
    pid_ = fork();
    if (pid_ == 0) guard(reader.get(), leave_ms);
  }
  if (pid_ > 0) return;
  throw Error(ErrorCode::kFailed, std::string("[run] cannot start the process that watches over "
                                              "the workers: ") +
                                      std::strerror(errno));  // NOLINT(concurrency-mt-unsafe)
}

GroupGuard::~GroupGuard() {
  pipe_.reset();
  waitpid(pid_, nullptr, 0);
}

void GroupGuard::tell(pid_t message) const {
  // A message is smaller than PIPE_BUF: it is written whole.
  [[maybe_unused]] const ssize_t n = write(pipe_.get(), &message, sizeof message);
}

}  // namespace pushpull

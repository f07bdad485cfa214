#include "cli/run/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/host/cores.h"

namespace pushpull {
namespace {

std::string reason() {
  return std::strerror(errno);  // NOLINT(concurrency-mt-unsafe): one thread
}

struct Pipe {
  UniqueFd reader;  // non-blocking
  UniqueFd writer;

  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      throw Error(ErrorCode::kFailed, "[run] cannot make a pipe: " + reason());
    }
    reader = UniqueFd(ends[0]);
    writer = UniqueFd(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
};

// Strings as exec takes them.
class PointerList {
 public:
  explicit PointerList(std::vector<std::string> strings) : strings_(std::move(strings)) {
    for (std::string& string : strings_) pointers_.push_back(string.data());
    pointers_.push_back(nullptr);
  }
  char** get() { return pointers_.data(); }

 private:
  std::vector<std::string> strings_;
  std::vector<char*> pointers_;
};

// Returns this process's environment with the plan's variables.
std::vector<std::string> environment_of(const StartPlan& plan) {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const bool is_planned = std::ranges::any_of(plan.environment, [&](const auto& planned) {
      return text.substr(0, text.find('=')) == planned.first;
    });
    if (!is_planned) all.emplace_back(text);
  }
  for (const auto& [name, value] : plan.environment) {
    if (value) all.push_back(name + "=" + *value);
  }
  return all;
}

// Runs between fork and exec: only calls that allocate nothing.
//   parent: with which this process ends, if any. mask: its CPUs, or null.
[[noreturn]] void become(char* const* argv, char** environment, std::optional<pid_t> parent,
                         const CpuMask* mask, int in, int out, int err, int announce) {
  if (parent) prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (parent && getppid() != *parent) {
    _exit(128 + SIGTERM);  // the parent died before prctl took effect
  }
  setpgid(0, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD, SIGPIPE}) {
    std::signal(signal, SIG_DFL);  // SIGHUP stays as it is: nohup(1) ignores it
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  if (announce == Child::kAnnounceFd) {
    fcntl(announce, F_SETFD, 0);
  } else if (announce >= 0) {
    dup2(announce, Child::kAnnounceFd);
  }
  if (mask != nullptr && !mask->bind()) {
    constexpr std::string_view kRefused = "[run] the kernel refuses the CPUs of --bind\n";
    [[maybe_unused]] const ssize_t refused = write(STDERR_FILENO, kRefused.data(), kRefused.size());
  }
  environ = environment;
  execvp(argv[0], argv);
  constexpr std::string_view kText = "[run] this program cannot be executed\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText.data(), kText.size());
  _exit(127);
}

// Reaps what is left of a killed group, as far as this process has become its parent
// (PR_SET_CHILD_SUBREAPER). Waits at most a second: a process that is stuck in the kernel stays.
void reap_group(pid_t group) {
  constexpr int kMostMs = 1000;
  constexpr useconds_t kMicroseconds = 1000;
  for (int ms = 0; ms < kMostMs;) {
    const pid_t reaped = waitpid(-group, nullptr, WNOHANG);
    if (reaped < 0) return;
    if (reaped > 0) continue;
    usleep(kMicroseconds);
    ++ms;
  }
}

}  // namespace

Child::Child(const StartPlan& plan, bool announce) {
  const std::string& program = plan.words.front();
  if (program.find('/') != std::string::npos && access(program.c_str(), X_OK) != 0) {
    throw Error(ErrorCode::kFailed, "[run] cannot start " + program + ": " + reason());
  }
  Pipe out_pipe;
  Pipe err_pipe;
  Pipe announce_pipe;
  const UniqueFd in(open("/dev/null", O_RDONLY | O_CLOEXEC));
  PointerList words(plan.words);
  PointerList environment(environment_of(plan));
  const std::optional<CpuMask> mask =
      plan.cpus.empty() ? std::nullopt : std::optional<CpuMask>(plan.cpus);

  const std::optional<pid_t> parent =
      plan.ends_with_launcher ? std::optional(getpid()) : std::nullopt;
  pid_ = fork();
  if (pid_ < 0) {
    throw Error(ErrorCode::kFailed, "[run] cannot start " + program + ": " + reason());
  }
  if (pid_ == 0) {
    become(words.get(), environment.get(), parent, mask ? &*mask : nullptr, in.get(),
           out_pipe.writer.get(), err_pipe.writer.get(),
           announce ? announce_pipe.writer.get() : -1);
  }
  setpgid(pid_, pid_);  // in the parent too, so that send() finds the group at once
  out = std::move(out_pipe.reader);
  err = std::move(err_pipe.reader);
  if (announce) {
    announcement = std::move(announce_pipe.reader);
  }
}

Child::~Child() {
  if (!ended_) {
    send(SIGKILL);
    waitpid(pid_, nullptr, 0);
    reap_group(pid_);
  }
}

void Child::send(int signal) const {
  if (!ended_) {
    kill(-pid_, signal);
  }
}

std::optional<Ending> Child::poll_end() {
  // The process is reaped last: until then, no other process can get its number.
  siginfo_t info{};
  if (ended_ || waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid_) {
    return std::nullopt;
  }
  send(SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  ended_ = true;
  reap_group(pid_);
  if (WIFSIGNALED(status)) {
    return Ending{.code = 0, .signal = WTERMSIG(status)};
  }
  return Ending{.code = WEXITSTATUS(status), .signal = 0};
}

bool read_available(int fd, std::string& bytes) {
  bytes.resize(65536);
  while (true) {
    const ssize_t count = read(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) {
      continue;
    }
    bytes.resize(count > 0 ? static_cast<size_t>(count) : 0);
    return count > 0 || (count < 0 && errno == EAGAIN);
  }
}

}  // namespace pushpull

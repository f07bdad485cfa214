#include "ps/stops/program_output.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>

#include "common/base/process.h"
#include "common/base/unique_fd.h"

namespace pushpull {

namespace {

constexpr size_t kMaxOutputBytes = 64 << 10;

// Starts the program with its output in `out`, and signals as they are by default: this process
// blocks some. Returns its pid, or 0 with errno.
pid_t start(const std::vector<std::string>& words, int out) {
  std::vector<std::string> copies = words;
  std::vector<char*> argv;
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0], &files, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  errno = error;
  return error == 0 ? pid : 0;
}

// Reads until the end of the output. Returns false at the deadline.
bool read_all(int fd, int64_t deadline_ms, std::string& text) {
  std::array<char, 4096> part{};
  while (true) {
    pollfd ready{fd, POLLIN, 0};
    const int64_t left_ms = deadline_ms - now_ms();
    if (left_ms <= 0 || poll(&ready, 1, static_cast<int>(left_ms)) == 0) return false;
    const ssize_t count = read(fd, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    text.append(part.data(), static_cast<size_t>(count));
    if (text.size() > kMaxOutputBytes) text.resize(kMaxOutputBytes);
  }
}

}  // namespace

std::optional<std::string> output_of(const std::vector<std::string>& words, int64_t limit_ms,
                                     std::string& why) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    why = "no pipe can be made";
    return std::nullopt;
  }
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t pid = start(words, writer.get());
  if (pid == 0) {
    why = words.front() + ": " + std::strerror(errno);  // NOLINT(concurrency-mt-unsafe)
    return std::nullopt;
  }
  writer.reset();
  std::string text;
  const bool ended = read_all(reader.get(), now_ms() + limit_ms, text);
  if (!ended) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) {
    why = words.front() + " has not answered for " + std::to_string(limit_ms / 1000) + " s";
    return std::nullopt;
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    why = words.front() + " has failed";
    return std::nullopt;
  }
  return text;
}

}  // namespace pushpull

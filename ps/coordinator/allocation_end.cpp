#include "ps/coordinator/allocation_end.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"
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

namespace {

constexpr int64_t kSlurmMs = 20'000;
constexpr int64_t kMaxSeconds = int64_t{100} * 366 * 86'400;
constexpr const char* kWayOut = "; give the time with --stop-at, or leave --stop-before out";

[[noreturn]] void no_end(const std::string& why) {
  throw Error(ErrorCode::kUsage, "[stop] --stop-before: " + why + kWayOut);
}

// Returns a number of one to four digits.
std::optional<int64_t> small_number(std::string_view text) {
  constexpr size_t kMaxDigits = 4;
  if (text.empty() || text.size() > kMaxDigits) return std::nullopt;
  const std::optional<int64_t> value = parse_int64(text);
  return value && *value >= 0 ? value : std::nullopt;
}

}  // namespace

std::optional<int64_t> parse_time_left(std::string_view text) {
  constexpr std::array<int64_t, 3> kUnits{1, 60, 3600};  // from the right
  constexpr int64_t kDay = 86'400;
  int64_t seconds = 0;
  const size_t dash = text.find('-');
  if (dash != std::string_view::npos) {
    const std::optional<int64_t> days = small_number(text.substr(0, dash));
    if (!days) return std::nullopt;
    seconds = *days * kDay;
    text = text.substr(dash + 1);
  }
  size_t parts = 0;
  for (bool more = true; more; ++parts) {
    const size_t colon = text.rfind(':');
    more = colon != std::string_view::npos;
    const std::optional<int64_t> value = small_number(more ? text.substr(colon + 1) : text);
    if (!value || parts == kUnits.size()) return std::nullopt;
    seconds += *value * kUnits[parts];
    text = more ? text.substr(0, colon) : text;
  }
  if (parts < 2 || (dash != std::string_view::npos && parts < kUnits.size())) return std::nullopt;
  return seconds;
}

int64_t allocation_end(const AllocationSource& source) {
  if (const auto end = source.variable("SLURM_JOB_END_TIME")) {
    const std::optional<int64_t> seconds = parse_int64(*end);
    if (seconds && *seconds > 0 && *seconds < kMaxSeconds) return *seconds * 1000;
    no_end("SLURM_JOB_END_TIME is '" + printable(*end) + "': must be the seconds since 1970");
  }
  const std::optional<std::string> job = source.variable("SLURM_JOB_ID");
  if (!job) {
    no_end("this is no allocation of Slurm: neither SLURM_JOB_ID nor SLURM_JOB_END_TIME is set");
  }
  if (!parse_uint64(*job)) no_end("SLURM_JOB_ID is '" + printable(*job) + "': must be a number");
  std::string why;
  const std::optional<std::string> answer =
      source.run({"squeue", "--noheader", "--format=%L", "--jobs=" + *job}, why);
  if (!answer) no_end("the end of Slurm's job " + *job + " is unknown: " + why);
  const std::string_view left = trim(std::string_view(*answer).substr(0, answer->find('\n')));
  const std::optional<int64_t> seconds = parse_time_left(left);
  if (!seconds) {
    no_end("squeue says '" + printable(left) + "' for the time left of job " + *job +
           ": it has no end");
  }
  return source.now_utc_ms + *seconds * 1000;
}

AllocationSource this_allocation() {
  AllocationSource source;
  source.variable = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): no setenv
    if (value == nullptr) return std::nullopt;
    return value;
  };
  source.run = [](const std::vector<std::string>& words, std::string& why) {
    return output_of(words, kSlurmMs, why);
  };
  source.now_utc_ms = utc_ms();
  return source;
}

}  // namespace pushpull

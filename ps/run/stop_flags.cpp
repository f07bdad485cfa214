#include "ps/run/stop_flags.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/base/unique_fd.h"

namespace pushpull {

namespace {

constexpr int64_t kMaxUtcSeconds = 253'402'300'799;  // the end of the year 9999
constexpr double kMinGraceSeconds = 1.0;

// Signals that nothing else in these programs uses. A shell and schedulers can send all of them.
constexpr std::array kCheckpointSignals = {SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF,
                                           SIGURG,  SIGIO,   SIGPWR,  SIGWINCH,  SIGXCPU};

[[noreturn]] void refuse_signal(const std::string& text, const std::string& why) {
  throw Error(ErrorCode::kUsage, "[usage] --checkpoint-signal " + printable(text) + ": " + why +
                                     "; USR1, USR2, a real-time signal's number or none is usual");
}

int number_of(const std::string& text) {
  if (const std::optional<int64_t> number = parse_int64(text)) {
    return *number > 0 && *number < NSIG ? static_cast<int>(*number) : 0;
  }
  const std::string name = text.starts_with("SIG") ? text : "SIG" + text;
  for (int signal = 1; signal < NSIG; ++signal) {
    if (signal_name(signal) == name) return signal;
  }
  return 0;
}

std::string utc_text(int64_t utc_ms) {
  const std::time_t seconds = utc_ms / 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

int64_t ms_of(double seconds) { return std::llround(seconds * 1000.0); }

}  // namespace

std::vector<KeyHelp> with_stop_flags(std::vector<KeyHelp> flags) {
  const std::vector<KeyHelp> stops = {
      {"checkpoint-signal", "USR1",
       "signal that writes a checkpoint while training goes on: a name or number, or none"},
      {"grace", "25",
       "seconds from SIGTERM to the end; after them the job ends with its newest checkpoint"},
      {"stop-before", "",
       "stop this many seconds before the end of the allocation (Slurm), with a checkpoint"},
      {"stop-at", "",
       "stop at this time, with a checkpoint: 2026-01-31T23:59:59Z, or seconds since 1970"},
  };
  flags.insert(flags.end(), stops.begin(), stops.end());
  return flags;
}

int parse_checkpoint_signal(const std::string& text) {
  if (text == "none") return 0;
  const int signal = number_of(text);
  if (signal == 0) refuse_signal(text, "is no signal");
  const bool realtime = signal >= SIGRTMIN && signal <= SIGRTMAX;
  if (realtime || std::ranges::find(kCheckpointSignals, signal) != kCheckpointSignals.end()) {
    return signal;
  }
  refuse_signal(text, signal_name(signal) + " has another meaning");
}

std::optional<int64_t> parse_utc_ms(std::string_view text) {
  if (const std::optional<int64_t> seconds = parse_int64(text)) {
    const bool fits = *seconds >= 0 && *seconds <= kMaxUtcSeconds;
    return fits ? std::optional(*seconds * 1000) : std::nullopt;
  }
  const std::string copy(text);
  for (const char* format : {"%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%MZ"}) {
    std::tm parts{};
    const char* end = strptime(copy.c_str(), format, &parts);
    if (end == nullptr || *end != '\0') continue;
    const std::tm read = parts;
    const std::time_t seconds = timegm(&parts);  // changes the 31st of June to the 1st of July
    if (seconds < 0 || parts.tm_mday != read.tm_mday || parts.tm_sec != read.tm_sec) continue;
    return int64_t{seconds} * 1000;
  }
  return std::nullopt;
}

StopOptions stop_options(const CommandLine& line) {
  StopOptions options;
  options.checkpoint_signal = parse_checkpoint_signal(line.own("checkpoint-signal", "USR1"));
  const double grace = seconds_of(line, "grace", static_cast<double>(options.grace_ms) / 1000.0);
  if (grace < kMinGraceSeconds) {
    throw Error(ErrorCode::kUsage,
                "[usage] --grace " + line.own("grace", "") + ": must be at least 1 second");
  }
  options.grace_ms = ms_of(grace);
  if (!line.local.contains("stop-at")) {
    options.stop_before_ms = ms_of(seconds_of(line, "stop-before", 0.0));
    return options;
  }
  if (line.local.contains("stop-before")) {
    throw Error(ErrorCode::kUsage, "[usage] --stop-before and --stop-at: give one of them");
  }
  const std::string text = line.local.at("stop-at");
  const std::optional<int64_t> time = parse_utc_ms(text);
  if (!time) {
    throw Error(ErrorCode::kUsage, "[usage] --stop-at " + printable(text) +
                                       ": must be a time in UTC, as 2026-01-31T23:59:59Z, or "
                                       "seconds since 1970");
  }
  options.stop_at_utc_ms = *time;
  options.stop_reason = "--stop-at " + utc_text(*time) + " has come";
  return options;
}

StopOptions with_limit(StopOptions options, const CommandLine& line, const AllocationSource& source,
                       const std::function<bool()>& unfinished) {
  std::string why = "[stop] --stop-at " + line.own("stop-at", "") + ": this time has passed";
  if (options.stop_before_ms > 0) {
    const int64_t end = allocation_end(source);
    options.stop_at_utc_ms = end - options.stop_before_ms;
    options.stop_reason = "the allocation ends at " + utc_text(end) + ", in " +
                          print_real(static_cast<double>(options.stop_before_ms) / 1000.0) + " s";
    why = "[stop] --stop-before " + line.own("stop-before", "") + ": the allocation ends in " +
          std::to_string((end - source.now_utc_ms) / 1000) +
          " s, so nothing can be trained; ask for more time, or lower --stop-before";
  }
  const bool passed = options.stop_at_utc_ms <= source.now_utc_ms;
  if (passed && !unfinished()) throw Error(ErrorCode::kUsage, why);
  return options;
}

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

// Waits for the end of a program that has closed its output, until the deadline. Returns its status, or nothing: it then is
// killed, and left behind if the kernel does not let it go.
std::optional<int> status_of(pid_t pid, int64_t deadline_ms) {
  constexpr int64_t kKilledMs = 2000;
  constexpr timespec kPause{0, 5'000'000};
  bool killed = false;
  while (true) {
    int status = 0;
    const pid_t reaped = waitpid(pid, &status, WNOHANG);
    if (reaped == pid) return killed ? std::nullopt : std::optional(status);
    if (reaped < 0 && errno != EINTR) return std::nullopt;
    if (now_ms() >= deadline_ms) {
      if (killed) return std::nullopt;
      kill(pid, SIGKILL);
      killed = true;
      deadline_ms = now_ms() + kKilledMs;
    }
    nanosleep(&kPause, nullptr);
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
  const int64_t deadline_ms = now_ms() + limit_ms;
  const bool ended = read_all(reader.get(), deadline_ms, text);
  const std::optional<int> status = status_of(pid, ended ? deadline_ms : now_ms());
  if (!status) {
    why = words.front() + " has not answered for " + std::to_string(limit_ms / 1000) + " s";
    return std::nullopt;
  }
  if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0) {
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

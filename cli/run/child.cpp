#include "cli/run/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/run/launcher.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/host/cores.h"

namespace pushpull {
namespace {

void append_to(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

void add_server(const LauncherOptions& options, size_t slot, const std::string& address,
                std::vector<std::string>& words) {
  words.push_back(options.server_program);
  if (slot == 0) {
    append_to(words, options.coordinator_arguments);
    append_to(words, {"--announce-fd", std::to_string(Child::kAnnounceFd)});
  } else {
    append_to(words, {"--join", address});
  }
  if (!options.server_devices.empty()) {
    append_to(words, {"--device", options.server_devices.at(slot)});
  }
}

void add_worker(const LauncherOptions& options, size_t rank, const std::string& address,
                std::vector<std::string>& words) {
  append_to(words, {options.worker_program, "--join", address});
  if (!options.worker_devices.empty()) {
    append_to(words, {"--device", options.worker_devices.at(rank)});
  }
  if (!options.trace_dir.empty()) {
    append_to(words, {"--trace", options.trace_dir + "/worker-" + std::to_string(rank) + ".json"});
  }
}

// For --device auto, the numbers of threads, and users' programs.
void take_share(const HostShare& share, StartPlan& plan) {
  plan.cpus = share.cpus;
  plan.environment.emplace_back("PUSHPULL_LOCAL_RANK", std::to_string(share.task.rank));
  plan.environment.emplace_back("PUSHPULL_LOCAL_WORLD_SIZE", std::to_string(share.task.size));
  plan.environment.emplace_back("PUSHPULL_CORES", std::to_string(share.cores));
}

// "g=tcp://127.0.0.1:1,d=tcp://127.0.0.1:2"
std::string jobs_text(const std::vector<std::pair<std::string, std::string>>& jobs) {
  std::string out;
  for (const auto& [name, address] : jobs) {
    out.append(out.empty() ? "" : ",").append(name).append("=").append(address);
  }
  return out;
}

// SIGTERM at the launcher's death would make srun kill its tasks: they end with the job, which the
// coordinator stops.
StartPlan plan_step(const Step& step, const std::string& address) {
  StartPlan plan{.words = step.words, .environment = {}, .ends_with_launcher = false};
  append_to(plan.words, {"--join", address});
  append_to(plan.words, step.words_after);
  plan.environment = {{"PUSHPULL_KEY", std::nullopt},
                      {"PUSHPULL_KEY_FILE", std::nullopt},
                      {"PUSHPULL_KEY_FD", std::nullopt},
                      {"PUSHPULL_CORES", std::nullopt},  // shares are those of another host
                      {"PUSHPULL_LOCAL_RANK", std::nullopt},
                      {"PUSHPULL_LOCAL_WORLD_SIZE", std::nullopt}};
  if (!step.key.empty()) plan.environment.front().second = step.key;
  return plan;
}

void set_unless_set(const std::string& name, const std::string& value, StartPlan& plan) {
  if (std::getenv(name.c_str()) != nullptr) return;  // NOLINT(concurrency-mt-unsafe)
  plan.environment.emplace_back(name, value);
}

StartPlan plan_process(const LauncherOptions& options, size_t slot, const std::string& address) {
  StartPlan plan;
  if (!options.shares.empty()) take_share(options.shares.at(slot), plan);
  const auto servers = static_cast<size_t>(options.supervisor.servers);
  const bool is_worker = slot >= servers;
  if (is_worker && options.step) return plan_step(*options.step, address);
  const bool has_place = !options.places.empty();
  if (has_place) plan.words = options.places.at(slot).prefix;
  if (is_worker) {
    plan.environment.emplace_back("PUSHPULL_RANK", std::to_string(slot - servers));
  }
  if (is_worker && !options.worker_command.empty()) {
    append_to(plan.words, options.worker_command);
    // PUSHPULL_INSECURE of another job must not open this one.
    plan.environment.emplace_back("PUSHPULL_JOIN", address);
    if (!options.addresses.empty()) {
      plan.environment.emplace_back("PUSHPULL_JOBS", jobs_text(options.addresses));
    }
    if (!options.shares.empty()) {
      // As torchrun does with 1: otherwise each process has a thread for each core of the host.
      set_unless_set("OMP_NUM_THREADS", std::to_string(options.shares.at(slot).cores), plan);
    }
    for (const auto& [name, value] : kept_heap_variables()) set_unless_set(name, value, plan);
    plan.environment.emplace_back(
        "PUSHPULL_INSECURE", options.insecure ? std::optional<std::string>("1") : std::nullopt);
    plan.ends_with_launcher = false;
    return plan;
  }
  if (is_worker) {
    add_worker(options, slot - servers, address, plan.words);
  } else {
    add_server(options, slot, address, plan.words);
  }
  if (options.data_port != "*") append_to(plan.words, {"--data-port", options.data_port});
  if (options.insecure) plan.words.emplace_back("--insecure");
  if (has_place) append_to(plan.words, options.places.at(slot).arguments);
  return plan;
}

}  // namespace

StartPlan plan_start(const LauncherOptions& options, size_t slot, const std::string& address) {
  StartPlan plan = plan_process(options, slot, address);
  if (!options.job_token.empty()) {
    plan.environment.emplace_back("PUSHPULL_JOB_TOKEN", options.job_token);
  }
  return plan;
}

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

#include "common/base/process.h"

#include <malloc.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "common/base/error.h"

namespace pushpull {

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown-host";
  return name.data();
}

int64_t utc_ms() {
  using std::chrono::system_clock;
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             system_clock::now().time_since_epoch())
      .count();
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

int64_t AwakeClock::advance(int64_t real_ms) {
  constexpr int64_t kLongestTurnMs = 500;
  if (real_ms_ >= 0) awake_ms_ += std::min(real_ms - real_ms_, kLongestTurnMs);
  real_ms_ = real_ms;
  return awake_ms_;
}

std::string program_folder_of(const std::string& self) {
  const std::filesystem::path folder = std::filesystem::path(self).parent_path();
  if (!folder.string().ends_with("/lib/pushpull/loader")) return folder.string();
  return (folder.parent_path().parent_path().parent_path() / "bin").string();
}

std::string program_folder() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) return program_folder_of(self.string());
  throw Error(ErrorCode::kFailed, "[pushpull] cannot find its own folder: /proc/self/exe: " +
                                      error.message() + "; is /proc mounted?");
}

uint64_t random_id() {
  uint64_t id = 0;
  while (id == 0) {
    if (getrandom(&id, sizeof id, 0) != sizeof id) id = 0;
  }
  return id;
}

int64_t peak_rss_kib() {
  // Not ru_maxrss: it survives exec(), so the child of a large process would look large. VmHWM
  // belongs to the address space.
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

namespace {

constexpr int kMappedAlone = 1 << 30;  // larger chunks only are pages of their own
constexpr int kTrimmed = INT32_MAX;    // free bytes at the end of the heap

}  // namespace

void keep_heap() {
  mallopt(M_MMAP_THRESHOLD, kMappedAlone);
  mallopt(M_TRIM_THRESHOLD, kTrimmed);
}

std::vector<std::pair<std::string, std::string>> kept_heap_variables() {
  return {{"MALLOC_MMAP_THRESHOLD_", std::to_string(kMappedAlone)},
          {"MALLOC_TRIM_THRESHOLD_", std::to_string(kTrimmed)}};
}

void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // on failure the old limit stays
}

SignalFd::SignalFd(int also) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) sigaddset(&set, signal);
  if (also != 0) sigaddset(&set, also);
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN)
    sigaddset(&set, SIGHUP);  // blocked, it would arrive all the same
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // exceeding a file size limit becomes an error of write()
  fd_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  PP_ASSERT(fd_ >= 0);
}

SignalFd::~SignalFd() { close(fd_); }

int SignalFd::take_any() {
  signalfd_siginfo info{};
  return read(fd_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

int SignalFd::take() {
  int signal = take_any();
  for (; signal != 0 && !asks_to_end(signal); signal = take_any()) {
    if (std::exchange(noticed_, true)) continue;
    notice_ = "ignored " + signal_name(signal) +
              ": only the first server writes a checkpoint at a signal";
  }
  return signal;
}

bool asks_to_end(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP; }

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? "signal " + std::to_string(signal) : std::string("SIG") + name;
}

WakeFd::WakeFd() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) { PP_ASSERT(fd_ >= 0); }

WakeFd::~WakeFd() { close(fd_); }

void WakeFd::wake() {
  const uint64_t one = 1;
  const ssize_t ignored = write(fd_, &one, sizeof one);
  (void)ignored;  // EAGAIN: the counter is full, so the reader will wake up anyway
}

void WakeFd::clear() {
  uint64_t count = 0;
  const ssize_t ignored = read(fd_, &count, sizeof count);
  (void)ignored;
}

}  // namespace pushpull

// System calls of a program: time, identity, memory, signals. Any thread unless stated.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pushpull {

// Monotonic clock, in milliseconds or seconds.
int64_t now_ms();
double now_seconds();

// Returns the time of day in milliseconds since 1970 (UTC).
int64_t utc_ms();

// Returns the time of day as ISO 8601, in UTC: "2026-01-31T23:59:59Z".
std::string utc_now();

// A clock that stops while this process is stopped (SIGSTOP, Ctrl-Z, a debugger), so that the
// process does not mistake its own pause for its peers' silence. Call it in every turn of the loop:
// one turn counts as at most 500 ms. One thread.
class AwakeClock {
 public:
  int64_t now_ms() { return advance(pushpull::now_ms()); }
  // real_ms: the value of pushpull::now_ms().
  int64_t advance(int64_t real_ms);

 private:
  int64_t real_ms_ = -1;
  int64_t awake_ms_ = 0;
};

// Returns the name of this host, for messages.
std::string host_name();

// Returns the folder of the program that a user started: other programs and data are beside it. In a
// package that brings its own C library, the kernel executes lib/pushpull/loader/NAME of the
// package (scripts/package/launch.sh); the programs are then those in the package's bin. Throws
// Error(kFailed) without /proc.
std::string program_folder();

// Returns the same if `self` is the executed file.
std::string program_folder_of(const std::string& self);

// Returns a random number, never 0. Identifies a run, or one life of a process (its incarnation).
uint64_t random_id();

// Returns the peak resident memory of this process since its program started, in KiB.
int64_t peak_rss_kib();

// Returns the processor time of this process so far, in seconds: all threads, user and system.
double cpu_seconds();

// Makes malloc keep freed memory in the process: faulting in fresh pages for every message costs
// more than half of the bandwidth.
void keep_heap();

// Returns the variables of the environment by which a program of the user's does the same if its C library is
// glibc (mallopt(3)).
std::vector<std::pair<std::string, std::string>> kept_heap_variables();

// Raises the limit of open files to the hard limit, for this process and its children. Each
// connection needs one; the usual soft limit of 1,024 exists for programs that use select().
void raise_file_limit();

// Makes signals pollable (signalfd). Create it once, before any thread starts: it blocks them from
// then on.
//   SIGINT, SIGTERM, SIGHUP: ask the program to end. A SIGHUP that the program inherits as ignored
//   stays ignored: nohup(1). SIGINT does not, because a shell without job control ignores it for each
//   command with `&`, and a SIGINT by kill(1) must still stop such a program.
//   SIGUSR1, SIGUSR2: ask the coordinator for a checkpoint. A scheduler sends them to all processes
//   of a job, so they must end none.
// Also ignores SIGPIPE and SIGXFSZ.
class SignalFd {
 public:
  //   also: one more signal that ends nothing, or 0.
  explicit SignalFd(int also = 0);
  ~SignalFd();
  SignalFd(const SignalFd&) = delete;
  SignalFd& operator=(const SignalFd&) = delete;

  int fd() const { return fd_; }
  // Returns the next pending signal that asks the program to end, or 0. Drops others.
  int take();
  // Returns a line for users when `take` has dropped a signal for the first time, or "".
  std::string take_notice() { return std::exchange(notice_, {}); }
  // Returns the next pending signal, or 0.
  int take_any();

 private:
  int fd_;
  bool noticed_ = false;
  std::string notice_;
};

// Returns true for SIGINT, SIGTERM and SIGHUP.
bool asks_to_end(int signal);

// Returns "SIGTERM" for 15.
std::string signal_name(int signal);

// Wakes a poll loop from another thread (eventfd).
class WakeFd {
 public:
  WakeFd();
  ~WakeFd();
  WakeFd(const WakeFd&) = delete;
  WakeFd& operator=(const WakeFd&) = delete;

  int fd() const { return fd_; }
  void wake();
  void clear();

 private:
  int fd_;
};

}  // namespace pushpull

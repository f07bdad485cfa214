// What a program asks of its operating system: time, identity, memory, signals. Any thread unless
// said.
#pragma once

#include <cstdint>
#include <string>

namespace pushpull {

// Milliseconds, or seconds, of a clock that never jumps.
int64_t now_ms();
double now_seconds();

// Time as a loop of this process lives it: stands still while the process is stopped (SIGSTOP,
// Ctrl-Z, a debugger), so that what others could not say meanwhile is no silence of theirs. Ask it
// in every turn. One thread.
class AwakeClock {
 public:
  int64_t now_ms() { return advance(pushpull::now_ms()); }
  // real_ms: what pushpull::now_ms() says.
  int64_t advance(int64_t real_ms);

 private:
  int64_t real_ms_ = -1;
  int64_t awake_ms_ = 0;
};

// Random and not 0: names one life of a process, or a run.
uint64_t random_id();

// The most memory that this process has used since its program was started.
int64_t peak_rss_kib();

// Processor time of this process so far, all threads, user and system.
double cpu_seconds();

// Keeps freed memory in the process: fresh pages for every message cost more than half of the
// bandwidth.
void keep_heap();

// Lets this process and its children open as many files as the system allows: each connection is
// one, and the usual soft limit of 1,024 is for programs that use select().
void raise_file_limit();

// SIGINT, SIGTERM and SIGHUP as something to poll. Made once, before any thread starts; they are
// blocked from then on. SIGPIPE is ignored.
class SignalFd {
 public:
  SignalFd();
  ~SignalFd();
  SignalFd(const SignalFd&) = delete;
  SignalFd& operator=(const SignalFd&) = delete;

  int fd() const { return fd_; }
  // The next signal that has come, 0 when there is none.
  int take();

 private:
  int fd_;
};

// "SIGTERM" for 15.
std::string signal_name(int signal);

// A counter that another thread can wake a poll loop with (eventfd).
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

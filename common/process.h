// What a program asks of its operating system: time, identity, memory, signals. Any thread unless
// said.
#pragma once

#include <cstdint>
#include <string>

namespace pushpull {

// Milliseconds of a clock that never jumps.
int64_t now_ms();

// Random and not 0: names one life of a process, or a run.
uint64_t random_id();

// The most memory that this process has used.
int64_t peak_rss_kib();

// Keeps freed memory in the process: fresh pages for every message cost more than half of the
// bandwidth.
void keep_heap();

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

// Signals as readable events, for the duration of a job. One thread.
#pragma once

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <initializer_list>

#include "common/base/error.h"
#include "common/base/unique_fd.h"

namespace pushpull {

// Keeps the signals that end a program pending, so that results can be written first. During a run
// the launcher handles them; between two runs, call `take`. One thread.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&set_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action {};
      sigaction(signal, nullptr, &action);
      if (action.sa_handler != SIG_IGN) sigaddset(&set_, signal);  // nohup(1)
    }
    sigprocmask(SIG_BLOCK, &set_, &before_);
    pipe_before_ = std::signal(SIGPIPE, SIG_IGN);  // a closed pager must not lose the results
  }
  ~HeldSignals() {
    std::signal(SIGPIPE, pipe_before_);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  // Returns a signal that is pending or arrives within `timeout_ms`, or 0 if there is none.
  int take(long timeout_ms = 0) {
    constexpr long kNsPerMs = 1'000'000;
    const timespec timeout{timeout_ms / 1000, timeout_ms % 1000 * kNsPerMs};
    const int signal = sigtimedwait(&set_, nullptr, &timeout);
    return signal > 0 ? signal : 0;
  }

 private:
  sigset_t set_{};
  sigset_t before_{};
  void (*pipe_before_)(int) = SIG_DFL;
};

class SignalQueue {
 public:
  //   checkpoint_signal: one more signal, or 0.
  explicit SignalQueue(int checkpoint_signal = 0) {
    sigset_t mask;
    sigemptyset(&mask);
    for (const int signal : {SIGINT, SIGTERM, SIGCHLD, SIGUSR1, SIGUSR2}) {
      sigaddset(&mask, signal);
    }
    if (checkpoint_signal != 0) sigaddset(&mask, checkpoint_signal);
    for (const int signal : {SIGHUP, SIGTSTP}) {
      struct sigaction action {};
      sigaction(signal, nullptr, &action);
      if (action.sa_handler != SIG_IGN) {  // nohup(1) and shells without job control ignore them
        sigaddset(&mask, signal);
      }
    }
    sigprocmask(SIG_BLOCK, &mask, &before_);
    pipe_before_ = std::signal(SIGPIPE, SIG_IGN);  // a closed pager must not stop a training run
    fd_ = UniqueFd(signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC));
    if (fd_.get() < 0) {
      throw Error(ErrorCode::kFailed, "[run] cannot make a signalfd");
    }
  }
  ~SignalQueue() {
    std::signal(SIGPIPE, pipe_before_);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int fd() const { return fd_.get(); }
  // Returns the oldest pending signal, or 0 if there is none.
  int take() {
    signalfd_siginfo info{};
    return read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo)
                                                              : 0;
  }

 private:
  sigset_t before_{};
  void (*pipe_before_)(int) = SIG_DFL;
  UniqueFd fd_;
};

}  // namespace pushpull

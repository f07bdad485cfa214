// Keeps the signals that end a program pending, so that results can be written first. During a run
// the launcher handles them; between two runs, call `take`. One thread.
#pragma once

#include <csignal>
#include <ctime>
#include <initializer_list>

namespace pushpull {

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

}  // namespace pushpull

// Tells the first signal, which asks the process to end in order, from a second SIGINT, which ends
// it at once. A scheduler repeats SIGTERM, a terminal or a dying parent signals all processes, and
// one Ctrl-C may arrive twice: from the terminal and from a wrapper such as timeout(1). Reads no
// clock. One thread.
#pragma once

#include <csignal>
#include <cstdint>
#include <optional>

namespace pushpull {

class EndRequest {
 public:
  static constexpr int64_t kEchoMs = 300;     // two SIGINTs within this time are one Ctrl-C
  static constexpr int64_t kGraceMs = 25000;  // for an end in order; schedulers kill after 30 s
  static constexpr int64_t kSilentMs = 5000;  // of a coordinator, which speaks twice a second

  // Returns true if the process must end at once.
  bool take(int64_t now_ms, int signal) {
    if (signal_ == 0) {
      signal_ = signal;
      asked_ms_ = now_ms;
    }
    if (signal != SIGINT) return false;
    if (!interrupt_ms_) interrupt_ms_ = now_ms;
    return now_ms - *interrupt_ms_ >= kEchoMs;
  }

  bool asked() const { return signal_ != 0; }
  // Returns the first signal, or 0.
  int signal() const { return signal_; }
  // Returns whether the grace period is over.
  bool overdue(int64_t now_ms, int64_t grace_ms = kGraceMs) const {
    return asked() && now_ms - asked_ms_ >= grace_ms;
  }
  // Returns whether a member must end by itself: the grace period is over, and the coordinator, which
  // knows how long the job may take to stop, is silent.
  bool abandoned(int64_t now_ms, int64_t silent_ms) const {
    return overdue(now_ms) && silent_ms >= kSilentMs;
  }

 private:
  int signal_ = 0;
  int64_t asked_ms_ = 0;
  std::optional<int64_t> interrupt_ms_;  // time of the first SIGINT
};

}  // namespace pushpull

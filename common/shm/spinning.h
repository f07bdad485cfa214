// How long a thread looks for a message before it sleeps. To wake a thread costs the sender and the
// reader some microseconds each, and more where the core has fallen asleep, too; looking costs the
// core, which is wrong where others want it. One thread.
#pragma once

#include <chrono>
#include <cstdint>

#include "common/job/job.h"

namespace pushpull {

class Spinning {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Spinning(Wait wait) : wait_(wait) {}

  // Returns how long the wait that begins now may spin; 0 if it sleeps at once.
  Clock::duration limit(Clock::time_point now);
  // Tells that the thread has offered its core to others for so long. Returns true if the wait must
  // spin no more: another thread computes on the core.
  bool yielded(Clock::time_point now, Clock::duration took);
  // Tells whether a wait that could spin has brought its message before it slept.
  void ended(bool in_time);
  // The waits so far, and those that brought their message before they slept.
  int64_t waits() const { return waits_; }
  int64_t in_time() const { return in_time_; }

  static constexpr std::chrono::microseconds kAutoLimit{100};
  static constexpr std::chrono::microseconds kSpinLimit{1000};
  // `auto`: a core that is given back later than this is wanted by a thread that computes. Threads that spin, too,
  // give it back sooner.
  static constexpr std::chrono::microseconds kTaken{200};

 private:
  static constexpr std::chrono::milliseconds kMinPause{20};
  static constexpr std::chrono::milliseconds kMaxPause{6400};
  static constexpr int kMaxMisses = 6;
  static constexpr int kHits = 1000;

  const Wait wait_;
  int64_t waits_ = 0;
  int64_t in_time_ = 0;
  int misses_ = 0;  // waits in a row that slept after all
  int skip_ = 0;    // waits that sleep at once because of them
  int hits_ = 0;    // waits since the core was taken that did not sleep
  Clock::time_point paused_until_;
  Clock::duration pause_ = kMinPause;
};

}  // namespace pushpull

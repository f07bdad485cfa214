// Timers with which state machines repeat an action. Times are milliseconds of the clock that the
// caller passes to its machine. Plain values; one thread.
#pragma once

#include <cstdint>
#include <optional>

namespace pushpull {

// Fires on the first call, then once per interval.
class Repeat {
 public:
  explicit Repeat(int64_t interval_ms) : interval_ms_(interval_ms) {}

  // Returns whether the timer has fired; if so, restarts it.
  bool due(int64_t now_ms) {
    if (next_ms_ && now_ms < *next_ms_) return false;
    restart(now_ms);
    return true;
  }
  // Makes the next call of due() fire.
  void expire() { next_ms_.reset(); }
  // Makes the timer fire one interval from now.
  void restart(int64_t now_ms) { next_ms_ = now_ms + interval_ms_; }

 private:
  int64_t interval_ms_;
  std::optional<int64_t> next_ms_;
};

// The same for an action with a key: a new key fires at once.
template <class Key>
class RepeatOf {
 public:
  explicit RepeatOf(int64_t interval_ms) : timer_(interval_ms) {}

  bool due(const Key& key, int64_t now_ms) {
    if (key_ != key) timer_.expire();
    key_ = key;
    return timer_.due(now_ms);
  }

 private:
  Repeat timer_;
  std::optional<Key> key_;
};

}  // namespace pushpull

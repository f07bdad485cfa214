// How often members of a job repeat messages on the control connection (docs/protocol.md), in
// milliseconds, the timers with which they do it, and how many messages a loop takes in one turn.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace pushpull {

// Timers with which state machines repeat an action. Times are milliseconds of the clock that the
// caller passes to its machine. Plain values; one thread.
//
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

constexpr int64_t kHelloMs = 500;        // Hello, until it is answered
constexpr int64_t kRequestMs = 1000;     // Declare and EvalResult, until they are acknowledged
constexpr int64_t kStepRequestMs = 200;  // Norms and Arrived: a step waits for the answer
constexpr int64_t kWaitingMs = 5000;     // lines for waiting users

// Returns the silence in milliseconds after which a member and the coordinator stop trusting their
// connection and the member opens another one. It is several heartbeats long.
inline int64_t unheard_ms(double timeout_s) {
  return std::max<int64_t>(1000, static_cast<int64_t>(timeout_s * 1000 / 3));
}

// Returns the time within which a member must be heard again after its connection was closed.
inline int64_t closed_grace_ms(double timeout_s) {
  return std::min<int64_t>(2000, static_cast<int64_t>(timeout_s * 1000));
}

// Returns the silence in milliseconds after which a member takes the connection after a closed one
// for damaged and opens another one, so that it is heard within the time above. At least two States
// come meanwhile.
inline int64_t successor_ms(double timeout_s) { return closed_grace_ms(timeout_s) / 2; }

// Returns the time between heartbeats: several fit into the time after which a silent member counts
// as lost.
inline int64_t heartbeat_ms(double timeout_s) {
  return std::min<int64_t>(1000, static_cast<int64_t>(timeout_s * 200));
}

// Limits the messages that a loop takes in one turn, by number and by size, so that a flood of them
// does not delay its other work.
class TurnBudget {
 public:
  TurnBudget(int64_t messages, int64_t bytes) : messages_(messages), bytes_(bytes) {}

  // Returns true if another message may be taken in this turn. The first one always may.
  bool left() const { return messages_ > 0 && bytes_ > 0; }
  // Frames: the parts of a message, each with a size().
  template <class Frames>
  void spend(const Frames& frames) {
    --messages_;
    for (const auto& frame : frames) bytes_ -= static_cast<int64_t>(frame.size());
  }

 private:
  int64_t messages_;
  int64_t bytes_;
};

}  // namespace pushpull

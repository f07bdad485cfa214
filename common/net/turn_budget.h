// Limits the messages that a loop takes in one turn, by number and by size, so that a flood of them
// does not delay its other work. One thread.
#pragma once

#include <cstdint>

namespace pushpull {

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

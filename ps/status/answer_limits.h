// How often questions for the job's status are answered: whoever asks is a stranger, and must not be
// able to make the coordinator talk. Time is an argument. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "common/net/message.h"

namespace pushpull {

class AnswerLimits {
 public:
  static constexpr int64_t kBetweenMs = 200;         // two answers on one connection
  static constexpr int64_t kMostOfConnection = 100;  // answers that nobody may ever read
  static constexpr int64_t kMostPerSecond = 50;      // to all
  static constexpr size_t kMostConnections = 1'024;  // that are remembered

  // Whether this question is answered; counts it where it is.
  bool take(int64_t now_ms, const PeerId& peer);

 private:
  struct Asker {
    int64_t newest_ms = 0;
    int64_t answers = 0;
  };

  std::map<PeerId, Asker> askers_;
  int64_t second_ms_ = 0;  // when the running second began
  int64_t in_second_ = 0;
};

}  // namespace pushpull

// Answers whoever asks what the way to this server's data port is like, as `pushpull doctor` does: how
// long a message takes, how many bytes pass, whether memory can be shared. Bounded, since anybody may
// ask: an answer's bytes lie in memory once, however many answers wait for a peer that never reads.
// Knows no socket; time is an argument. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/net/message.h"
#include "common/net/refusal.h"
#include "common/shm/segment.h"

namespace pushpull {

class Pings {
 public:
  static constexpr int64_t kMostBytes = int64_t{1} << 18;            // of an answer
  static constexpr int64_t kMostPerSecond = 1'000;                   // answers
  static constexpr int64_t kMostBytesPerSecond = int64_t{64} << 20;  // of all answers

  // Answers a question; or why it does not.
  Checked take(int64_t now_ms, const wire::Ping& ping, Message& answer);

 private:
  bool within_limits(int64_t now_ms, int64_t bytes);
  void offer_memory(const std::string& theirs, wire::Pong& pong);
  Payload filler(int64_t bytes);

  std::shared_ptr<const std::byte[]> zeros_;  // made when the first one asks
  std::optional<Segment> probe_;              // likewise
  int64_t second_ms_ = 0;                     // when the running second began
  int64_t answers_ = 0;                       // in it
  int64_t bytes_ = 0;                         // in it
};

}  // namespace pushpull

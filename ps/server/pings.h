// Answers pings to this server's data port, as `pushpull doctor` sends them: they measure latency
// and bandwidth and check whether memory can be shared. Memory is bounded, since any peer may ask:
// all answers share one buffer, even if a peer never reads its answers. Does no I/O; the caller
// passes the time. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/net/message.h"
#include "common/net/refusals.h"
#include "common/shm/segment.h"

namespace pushpull {

class Pings {
 public:
  static constexpr int64_t kMaxBytes = int64_t{1} << 18;            // of an answer
  static constexpr int64_t kMaxPerSecond = 1'000;                   // answers
  static constexpr int64_t kMaxBytesPerSecond = int64_t{64} << 20;  // of all answers

  // Answers a ping, or returns why not.
  Checked take(int64_t now_ms, const wire::Ping& ping, Message& answer);

 private:
  bool within_limits(int64_t now_ms, int64_t bytes);
  void offer_memory(const std::string& theirs, wire::Pong& pong);
  Payload filler(int64_t bytes);

  std::shared_ptr<const std::byte[]> zeros_;  // created by the first ping that needs it
  std::optional<Segment> probe_;              // created by the first ping that needs it
  int64_t second_ms_ = 0;                     // start of the running second
  int64_t answers_ = 0;                       // in the running second
  int64_t bytes_ = 0;                         // in the running second
};

}  // namespace pushpull

// Limits how often status requests are answered: any process may send them, and must not be able to
// overload the coordinator. The caller passes the time. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "common/net/message.h"

namespace pushpull {

class AnswerLimits {
 public:
  static constexpr int64_t kBetweenMs = 200;  // between two answers on one connection
  static constexpr int64_t kMaxOfConnection =
      100;  // answers on one connection, since a peer may not read them
  static constexpr int64_t kMaxPerSecond = 50;      // answers to all peers
  static constexpr size_t kMaxConnections = 1'024;  // connections remembered

  // Returns true if this request may be answered, and counts it.
  bool take(int64_t now_ms, const PeerId& peer);

 private:
  struct Client {
    int64_t newest_ms = 0;
    int64_t answers = 0;
  };

  std::map<PeerId, Client> clients_;
  int64_t second_ms_ = 0;  // start of the running second
  int64_t in_second_ = 0;
};

}  // namespace pushpull

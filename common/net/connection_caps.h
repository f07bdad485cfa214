// Decides which connections a process closes as soon as it has accepted them, so that strangers
// cannot use up its memory and its descriptors: those beyond a number of connections whose handshake
// is not done. The last descriptors stay free for files (common/base/accept_limit.h). Does no I/O
// and reads no clock. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "common/net/refusal.h"

namespace pushpull {

class ConnectionCaps {
 public:
  // libzmq closes connections whose handshake takes longer (ZMQ_HANDSHAKE_IVL).
  static constexpr int64_t kHandshakeMs = 5000;
  static constexpr int64_t kMaxUnfinished = 512;
  static constexpr int64_t kMaxSpare = 256;

  // descriptors: soft limit of the process (RLIMIT_NOFILE).
  explicit ConnectionCaps(int64_t descriptors, int64_t max_unfinished = kMaxUnfinished)
      : unfinished_(std::min<int64_t>(max_unfinished, descriptors / 4)),
        spare_(std::min<int64_t>(kMaxSpare, descriptors / 4)),
        descriptors_(descriptors) {}

  // Returns why the connection is to be closed at once, or nullopt. It counts until `closed`.
  std::optional<Refusal> accepted(int descriptor, int64_t now_ms);
  // A handshake has succeeded. libzmq does not say on which connection.
  void finished(int64_t now_ms) { finished_ms_.push_back(now_ms); }
  void closed(int descriptor);

  // The lowest descriptor that no connection gets, and the reason why one was closed for that.
  int64_t first_kept() const { return descriptors_ - spare_; }
  Refusal no_descriptor() const {
    return {"descriptors", "this process may have " + std::to_string(descriptors_) +
                               " descriptors (ulimit -n) and keeps the last " +
                               std::to_string(spare_) + " for files"};
  }

  // Connections accepted within the time of a handshake and still open, without as many as have
  // finished theirs.
  int64_t unfinished(int64_t now_ms);

 private:
  struct Young {
    int descriptor;
    int64_t accepted_ms;
  };

  const int64_t unfinished_;
  const int64_t spare_;
  const int64_t descriptors_;
  std::deque<Young> young_;         // oldest first; some may be closed
  std::map<int, int64_t> open_ms_;  // those of young_ that are open: when they were accepted
  std::deque<int64_t> finished_ms_;
};

inline int64_t ConnectionCaps::unfinished(int64_t now_ms) {
  while (!young_.empty() && now_ms - young_.front().accepted_ms > kHandshakeMs) {
    const auto open = open_ms_.find(young_.front().descriptor);
    if (open != open_ms_.end() && open->second == young_.front().accepted_ms) open_ms_.erase(open);
    young_.pop_front();
  }
  while (!finished_ms_.empty() && now_ms - finished_ms_.front() > kHandshakeMs) {
    finished_ms_.pop_front();
  }
  return std::max<int64_t>(0, std::ssize(open_ms_) - std::ssize(finished_ms_));
}

inline std::optional<Refusal> ConnectionCaps::accepted(int descriptor, int64_t now_ms) {
  const int64_t before = unfinished(now_ms);
  young_.push_back({descriptor, now_ms});
  open_ms_[descriptor] = now_ms;
  if (before >= unfinished_) {
    return Refusal{"unfinished",
                   std::to_string(before) + " connections have not finished their handshake"};
  }
  return std::nullopt;
}

inline void ConnectionCaps::closed(int descriptor) { open_ms_.erase(descriptor); }

}  // namespace pushpull

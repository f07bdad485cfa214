#include "ps/status/answer_limits.h"

#include <algorithm>

namespace pushpull {

bool AnswerLimits::take(int64_t now_ms, const PeerId& peer) {
  if (now_ms - second_ms_ >= 1000) {
    second_ms_ = now_ms;
    in_second_ = 0;
  }
  if (in_second_ >= kMaxPerSecond) return false;
  const auto found = clients_.find(peer);
  if (found == clients_.end()) {
    if (clients_.size() >= kMaxConnections) {
      clients_.erase(std::min_element(
          clients_.begin(), clients_.end(),
          [](const auto& a, const auto& b) { return a.second.newest_ms < b.second.newest_ms; }));
    }
    clients_[peer] = {now_ms, 1};
  } else {
    Client& client = found->second;
    if (now_ms - client.newest_ms < kBetweenMs || client.answers >= kMaxOfConnection) return false;
    client = {now_ms, client.answers + 1};
  }
  ++in_second_;
  return true;
}

}  // namespace pushpull

#include "ps/status/answer_limits.h"

#include <algorithm>

namespace pushpull {

bool AnswerLimits::take(int64_t now_ms, const PeerId& peer) {
  if (now_ms - second_ms_ >= 1000) {
    second_ms_ = now_ms;
    in_second_ = 0;
  }
  if (in_second_ >= kMostPerSecond) return false;
  const auto found = askers_.find(peer);
  if (found == askers_.end()) {
    if (askers_.size() >= kMostConnections) {
      askers_.erase(std::min_element(
          askers_.begin(), askers_.end(),
          [](const auto& a, const auto& b) { return a.second.newest_ms < b.second.newest_ms; }));
    }
    askers_[peer] = {now_ms, 1};
  } else {
    Asker& asker = found->second;
    if (now_ms - asker.newest_ms < kBetweenMs || asker.answers >= kMostOfConnection) return false;
    asker = {now_ms, asker.answers + 1};
  }
  ++in_second_;
  return true;
}

}  // namespace pushpull

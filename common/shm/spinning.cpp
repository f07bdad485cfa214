#include "common/shm/spinning.h"

#include <algorithm>

namespace pushpull {

Spinning::Clock::duration Spinning::limit(Clock::time_point now) {
  ++waits_;
  if (wait_ == Wait::kSleep) return {};
  if (wait_ == Wait::kSpin) return kSpinLimit;
  if (now < paused_until_) return {};
  if (skip_ > 0) {
    --skip_;
    return {};
  }
  return kAutoLimit;
}

bool Spinning::yielded(Clock::time_point now, Clock::duration took) {
  if (wait_ != Wait::kAuto || took < kTaken) return false;
  paused_until_ = now + pause_;
  pause_ = std::min<Clock::duration>(2 * pause_, kMaxPause);
  hits_ = 0;
  return true;
}

void Spinning::ended(bool in_time) {
  if (!in_time) {
    misses_ = std::min(misses_ + 1, kMaxMisses);
    skip_ = (1 << misses_) - 1;
    return;
  }
  ++in_time_;
  misses_ = 0;
  if (++hits_ == kHits) pause_ = kMinPause;
}

}  // namespace pushpull

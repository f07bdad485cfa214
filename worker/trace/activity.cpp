#include "worker/trace/activity.h"

#include <utility>

namespace pushpull {

namespace {

constexpr int64_t kSayMs = 200;
constexpr int64_t kFreshMs = 2000;  // an older wait has ended or hangs

}  // namespace

void Activity::wait(const std::function<std::string()>& what) {
  const int64_t now = clock_();
  if (now < next_say_ms_) return;
  next_say_ms_ = now + kSayMs;
  std::string text = what();
  const std::lock_guard lock(mutex_);
  what_ = std::move(text);
  said_ms_ = now;
}

void Activity::put(wire::Stats* stats) const {
  stats->set_progress(computed_.load(std::memory_order_relaxed));
  const std::lock_guard lock(mutex_);
  if (said_ms_ >= 0 && clock_() - said_ms_ <= kFreshMs) stats->set_waits_for(what_);
}

}  // namespace pushpull

#include "worker/trace/activity.h"

#include <utility>

namespace pushpull {

namespace {

constexpr int64_t kTextIntervalMs = 200;
constexpr int64_t kFreshMs = 2000;  // an older wait has ended or hangs

}  // namespace

void Activity::wait(const std::function<std::string()>& what) {
  const int64_t now = clock_();
  if (now < next_text_ms_) return;
  next_text_ms_ = now + kTextIntervalMs;
  std::string text = what();
  const std::lock_guard lock(mutex_);
  what_ = std::move(text);
  text_ms_ = now;
}

void Activity::put(wire::Stats* stats) const {
  stats->set_progress(computed_.load(std::memory_order_relaxed));
  const std::lock_guard lock(mutex_);
  if (text_ms_ >= 0 && clock_() - text_ms_ <= kFreshMs) stats->set_waits_for(what_);
}

}  // namespace pushpull

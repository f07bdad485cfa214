// Waits on a condition variable with or without a limit. Any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace pushpull {

// Waits until `done` returns true, at most for `timeout_ms` unless that is negative. Returns whether
// it is true.
template <typename Done>
bool wait_for(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
              int64_t timeout_ms, Done done) {
  if (timeout_ms >= 0) return changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), done);
  changed.wait(lock, done);
  return true;
}

}  // namespace pushpull

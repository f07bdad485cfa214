// The progress of a worker's trainer as its heartbeats report it: the amount computed and the
// reason of the current wait. Heartbeats come from the control thread, so without this a hung
// trainer would look alive. Written by the trainer's threads, read by the control thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "common/net/message.h"

namespace pushpull {

class Activity {
 public:
  // clock: in milliseconds; must be thread-safe.
  explicit Activity(std::function<int64_t()> clock) : clock_(std::move(clock)) {}

  // Counts micro-batches, or chunks of an evaluation, that were computed. Any thread.
  void add_computed(int64_t count) { computed_.fetch_add(count, std::memory_order_relaxed); }
  // Reports that the trainer waits. Call it in each turn of a wait, at least once a second: a wait
  // that is no longer reported counts as a hang. Trainer's thread.
  //   what: returns the reason, such as "weights of step 3 of server 1"; called a few times a
  //   second.
  void wait(const std::function<std::string()>& what);

  // Fills in `progress` and `waits_for`. Control thread.
  void put(wire::Stats* stats) const;

 private:
  const std::function<int64_t()> clock_;
  std::atomic<int64_t> computed_ = 0;
  mutable std::mutex mutex_;
  std::string what_;          // guarded by mutex_
  int64_t text_ms_ = -1;      // guarded by mutex_; -1 before the first wait
  int64_t next_text_ms_ = 0;  // trainer's thread only
};

}  // namespace pushpull

// What a worker's trainer does, as its heartbeats report it: how much it has computed, and what it
// waits for. Heartbeats come from another thread, so without this a trainer that stands still looks
// alive. Written by the trainer's threads, read by the control thread.
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
  // clock: milliseconds; called by both threads.
  explicit Activity(std::function<int64_t()> clock) : clock_(std::move(clock)) {}

  // Micro-batches or chunks of an evaluation have been computed. Any thread.
  void add_computed(int64_t count) { computed_.fetch_add(count, std::memory_order_relaxed); }
  // The trainer waits. It calls this in each turn of its wait, at least once a second: a wait that
  // says nothing any more stands still, too. what: in words, "weights of step 3 of server 1"; asked
  // a few times a second. The trainer's thread.
  void wait(const std::function<std::string()>& what);

  // Into the fields of these names. The control thread.
  void put(wire::Stats* stats) const;

 private:
  const std::function<int64_t()> clock_;
  std::atomic<int64_t> computed_ = 0;
  mutable std::mutex mutex_;
  std::string what_;         // guarded by mutex_
  int64_t said_ms_ = -1;     // guarded by mutex_; -1: it has never waited
  int64_t next_say_ms_ = 0;  // trainer's thread only
};

}  // namespace pushpull

// The settings of the first server for stops and for checkpoints by a signal. Plain data; any thread.
#pragma once

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <limits>
#include <string>

namespace pushpull {

// The time of an event, on three clocks. Plain data; any thread.
struct Now {
  int64_t ms = 0;        // wall-clock time (CLOCK_BOOTTIME): counts while the process is stopped
  int64_t awake_ms = 0;  // time the process was awake: measures the silence of others
  int64_t utc_ms = 0;    // time of day, since 1970
};

struct StopOptions {
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  int64_t grace_ms = 25'000;        // from a signal that stops the job until its end
  int checkpoint_signal = SIGUSR1;  // writes a checkpoint, and training goes on; 0 for none
  int64_t stop_at_utc_ms = kNever;  // the job then stops by itself
  int64_t stop_before_ms = 0;       // from that time until the allocation's end; 0 if unknown
  std::string stop_reason = {};     // "the allocation ends at 2026-01-31T23:59:59Z", for a line

  // Returns the grace of a stop at stop_at_utc_ms: it may last until the allocation ends.
  int64_t grace_of_limit_ms() const { return std::max(grace_ms, stop_before_ms); }
};

// The parts of a grace: when the job must have its cut on disk, so that its members still learn how
// it ends, and when the first server must be gone, whatever its file system does.
inline int64_t cut_ms(int64_t grace_ms) {
  constexpr int64_t kMostMs = 2000;
  return grace_ms - std::min(kMostMs, grace_ms / 5);
}
inline int64_t exit_ms(int64_t grace_ms) {
  constexpr int64_t kMostMs = 1000;
  return grace_ms - std::min(kMostMs, grace_ms / 10);
}

}  // namespace pushpull

// The time of an event, on three clocks. Plain data; any thread.
#pragma once

#include <cstdint>

namespace pushpull {

struct Now {
  int64_t ms = 0;        // wall-clock time (CLOCK_BOOTTIME): counts while the process is stopped
  int64_t awake_ms = 0;  // time the process was awake: measures the silence of others
  int64_t utc_ms = 0;    // time of day, since 1970
};

}  // namespace pushpull

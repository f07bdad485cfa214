// The resources that this process uses, and those that it has been given. Any thread.
#pragma once

#include <cstdint>

namespace pushpull {

struct ProcessUsage {
  int64_t rss_kib = 0;           // resident memory now
  int64_t peak_rss_kib = 0;      // since the program started
  int64_t memory_limit_kib = 0;  // of its control groups, when first asked; 0: none
  double cpu_seconds = 0.0;      // user and system time
  double cores = 0.0;            // CPU seconds per second that it can get: own_cores().given()
};

ProcessUsage process_usage();

// Puts it into a report to the coordinator.
//   Stats: wire::Stats, which this room does not know.
template <class Stats>
void put_usage(const ProcessUsage& usage, Stats& stats) {
  stats.set_rss_kib(usage.rss_kib);
  stats.set_peak_rss_kib(usage.peak_rss_kib);
  stats.set_memory_limit_kib(usage.memory_limit_kib);
  stats.set_cpu_seconds(usage.cpu_seconds);
  stats.set_cores(usage.cores);
}

}  // namespace pushpull

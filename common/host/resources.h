// The resources of this process: the limits that its control groups set, and what it uses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pushpull {

// The limits that control groups set for this process: version 1, version 2, or both side by side.
// Source: Linux, Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst. Plain functions; any thread.
struct GroupLimit {
  int64_t most = 0;  // bytes, or processes and threads
  int64_t used = 0;  // by all under that limit, without files in memory that the kernel drops first
  std::string file;  // that sets the limit
};

struct GroupLimits {
  std::optional<double> cpus;  // quota over period: 1.5 is one and a half cores; absent: no limit
  std::string cpus_file;       // that sets the quota
  std::optional<GroupLimit> memory;
  std::optional<GroupLimit> pids;
  std::vector<int> cpuset;  // CPUs that this process may bind itself to; empty: unknown
};

// Reads the limits from the process's groups and all groups around them, as far as they are visible; the strictest one
// of each kind counts. A file that is missing or cannot be parsed sets no limit.
//   root: in front of /proc and /sys, for tests.
GroupLimits read_group_limits(const std::string& root = "");

// The resources that this process uses, and those that it has been given. Any thread.
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

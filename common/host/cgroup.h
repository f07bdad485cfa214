// The limits that control groups set for this process: version 1, version 2, or both side by side.
// Source: Linux, Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst. Plain functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pushpull {

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

}  // namespace pushpull

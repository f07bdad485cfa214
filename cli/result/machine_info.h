// The environment of a comparison: the machine, its network stack, the libraries, the programs'
// commit. Read once; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace pushpull {

struct MachineInfo {
  std::string text;   // "AMD EPYC ..., 2 of 4 cores usable, 24.0 GiB, Linux 6.1.0 x86_64"
  int64_t cores = 1;  // usable by this process: its affinity, limited by the cgroup's quota
  std::string congestion_control;                // TCP's; empty = unknown
  std::map<std::string, std::string> libraries;  // "libzmq" -> "4.3.4"
};

MachineInfo machine_info();

// Returns "model name" from the text of /proc/cpuinfo, or "" if absent.
std::string processor_name(const std::string& cpuinfo);

// Returns the whole cores that the text of cgroup v2's cpu.max allows, from 1 to `otherwise`;
// returns `otherwise` if it sets no limit.
int64_t cores_of_quota(const std::string& cpu_max, int64_t otherwise);

// Returns the commit that the programs were built from, with "-dirty" appended if files had
// changed; "" if unknown. Written by cmake/Commit.cmake.
const char* built_commit();

}  // namespace pushpull

// Where a comparison was made: the machine, its network stack, the libraries, the commit of the
// programs. Read once; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace pushpull {

struct MachineInfo {
  std::string text;   // "AMD EPYC ..., 2 cores usable of 4, 24.0 GiB, Linux 6.1.0 x86_64"
  int64_t cores = 1;  // that this process may use: its affinity, cut by the cgroup's quota
  std::string congestion_control;                // of TCP; empty: not said here
  std::map<std::string, std::string> libraries;  // "libzmq" -> "4.3.4"
};

MachineInfo machine_info();

// "model name" in the text of /proc/cpuinfo; empty where it is not said.
std::string processor_name(const std::string& cpuinfo);

// Whole cores that the text of cgroup v2's cpu.max allows, at least 1; `otherwise` where it sets no
// limit.
int64_t cores_of_quota(const std::string& cpu_max, int64_t otherwise);

// Commit that the programs were built from, "-dirty" behind it where files had been changed; empty
// where it is unknown. Written by cmake/Commit.cmake.
const char* built_commit();

}  // namespace pushpull

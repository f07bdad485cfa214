// The environment of a comparison: the machine, its network stack, the libraries, the programs'
// commit. Read once; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace pushpull {

struct MachineInfo {
  std::string processor;                         // "AMD EPYC ..."; "" = unknown
  int64_t cores = 1;                             // usable by this process: own_cores()
  int64_t present = 1;                           // of the machine
  std::string rest;                              // "24.0 GiB, Linux 6.1.0 x86_64"
  std::string congestion_control;                // TCP's; empty = unknown
  std::map<std::string, std::string> libraries;  // "libzmq" -> "4.3.4"
};

MachineInfo machine_info();

// Returns "AMD EPYC ..., 2 of 4 cores usable, 24.0 GiB, Linux 6.1.0 x86_64".
std::string machine_text(const MachineInfo& info);

// Measures what processes outside of this one and its children use of the machine, from its
// construction on. Processor time that a host takes from a virtual machine (steal) counts too.
class OtherLoad {
 public:
  OtherLoad();
  // Returns the mean number of cores that they kept busy, or empty if /proc/stat cannot be read.
  // Children count once they have been waited for.
  std::optional<double> cores() const;

 private:
  int64_t began_ms_;
  std::optional<double> others_;  // seconds, at the beginning
};
// Returns the busy seconds of all cores in the text of /proc/stat, or empty if there are none.
//   ticks_per_second: sysconf(_SC_CLK_TCK).
std::optional<double> busy_seconds(const std::string& stat, double ticks_per_second);

// Returns "model name" from the text of /proc/cpuinfo, or "" if absent.
std::string processor_name(const std::string& cpuinfo);

// Returns the commit that the programs were built from, with "-dirty" appended if files had
// changed; "" if unknown. Written by cmake/Commit.cmake.
const char* built_commit();

}  // namespace pushpull

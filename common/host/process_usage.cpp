#include "common/host/process_usage.h"

#include <unistd.h>

#include <fstream>

#include "common/base/process.h"
#include "common/host/cgroup.h"
#include "common/host/cores.h"

namespace pushpull {

namespace {

int64_t resident_kib() {
  std::ifstream statm("/proc/self/statm");
  int64_t all = 0;
  int64_t resident = 0;
  return statm >> all >> resident ? resident * (sysconf(_SC_PAGESIZE) / 1024) : 0;
}

int64_t memory_limit_kib() {
  static const int64_t kib = [] {
    const auto memory = read_group_limits().memory;
    return memory ? memory->most / 1024 : int64_t{0};
  }();
  return kib;
}

}  // namespace

ProcessUsage process_usage() {
  ProcessUsage usage;
  usage.rss_kib = resident_kib();
  usage.peak_rss_kib = peak_rss_kib();
  usage.memory_limit_kib = memory_limit_kib();
  usage.cpu_seconds = cpu_seconds();
  usage.cores = own_cores().given();
  return usage;
}

}  // namespace pushpull

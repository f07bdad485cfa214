#include "cli/doctor/host_facts.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "common/base/process.h"
#include "common/host/binding.h"
#include "common/host/kernel_files.h"

namespace pushpull {

namespace {

// Returns a figure of /proc/meminfo in bytes, or 0.
int64_t memory_figure(const std::string& meminfo, const std::string& name) {
  std::istringstream lines(meminfo);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    int64_t kib = 0;
    if (words >> word >> kib && word == name + ":") return kib * 1024;
  }
  return 0;
}

Limits limits_of(__rlimit_resource resource) {
  rlimit limit{};
  getrlimit(resource, &limit);
  const auto number = [](rlim_t value) {
    return value > static_cast<rlim_t>(INT64_MAX) ? INT64_MAX : static_cast<int64_t>(value);
  };
  return {number(limit.rlim_cur), number(limit.rlim_max)};
}

bool has_entries(const std::string& folder) {
  std::error_code absent;
  const std::filesystem::directory_iterator entries(folder, absent);
  return !absent && entries != std::filesystem::directory_iterator();
}

}  // namespace

HostFacts read_host_facts(const std::string& root) {
  HostFacts facts;
  facts.host = host_name();
  facts.cores = read_cores(root);
  facts.numa_nodes = count_nodes(read_topology(facts.cores.cpus, root));
  facts.groups = read_group_limits(root);
  const std::string meminfo = read_small_file(root + "/proc/meminfo").value_or("");
  facts.memory_bytes = memory_figure(meminfo, "MemTotal");
  facts.available_bytes = memory_figure(meminfo, "MemAvailable");
  struct statvfs space {};
  if (statvfs("/dev/shm", &space) == 0) {
    const auto block = static_cast<int64_t>(space.f_frsize);
    facts.shm_bytes = static_cast<int64_t>(space.f_blocks) * block;
    facts.shm_free_bytes = static_cast<int64_t>(space.f_bavail) * block;
  }
  facts.files = limits_of(RLIMIT_NOFILE);
  facts.processes = limits_of(RLIMIT_NPROC);
  facts.locked = limits_of(RLIMIT_MEMLOCK);
  facts.infiniband = has_entries(root + "/sys/class/infiniband");
  facts.gpus = read_gpu_facts(root);
  return facts;
}

int64_t free_memory(const HostFacts& facts) {
  int64_t bytes = facts.available_bytes;
  if (facts.groups.memory) {
    bytes = std::min(bytes, facts.groups.memory->most - facts.groups.memory->used);
  }
  return std::max<int64_t>(0, bytes);
}

}  // namespace pushpull

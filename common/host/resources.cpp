#include "common/host/resources.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>
#include <string_view>

#include "common/base/process.h"
#include "common/base/text.h"
#include "common/host/cores.h"
#include "common/host/kernel_files.h"

namespace pushpull {

namespace {

constexpr int64_t kNoLimit = int64_t{1} << 60U;  // version 1 writes a number near 2^63

// The groups of this process under one controller, from its own to the outermost one.
struct GroupChain {
  bool second = false;  // version 2
  std::vector<std::string> folders;
};

// A line of /proc/self/cgroup, "4:cpu,cpuacct:/a/b". Version 2 has no controllers: "0::/a/b".
struct GroupLine {
  std::string controllers;
  std::string path;
};

std::vector<GroupLine> group_lines(const std::string& root) {
  std::vector<GroupLine> out;
  std::istringstream lines(read_small_file(root + "/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    out.push_back({line.substr(first + 1, second - first - 1), line.substr(second + 1)});
  }
  return out;
}

bool has_word(const std::string& list, std::string_view word) {
  std::istringstream words(list);
  for (std::string one; std::getline(words, one, ',');) {
    if (one == word) return true;
  }
  return false;
}

// In a container the path may be that of the host, while the mount shows the container's own group: a folder that does
// not exist holds no files, and the mount itself is always the last one.
void add_folders(const std::string& mount, std::string path, std::vector<std::string>& folders) {
  while (!path.empty() && path != "/") {
    folders.push_back(mount + path);
    path.resize(std::min(path.rfind('/'), path.size() - 1));
  }
  folders.push_back(mount);
}

GroupChain chain_of(const std::string& root, const std::string& controller) {
  const std::string mounts = root + "/sys/fs/cgroup";
  GroupChain chain;
  const std::vector<GroupLine> lines = group_lines(root);
  const std::string alone =
      mounts + "/" + controller;  // a link to the folder of several controllers
  for (const GroupLine& line : lines) {
    if (!has_word(line.controllers, controller)) continue;
    add_folders(mounts + "/" + line.controllers, line.path, chain.folders);
    if (line.controllers != controller) {
      add_folders(alone, line.path, chain.folders);
    }
    return chain;
  }
  chain.second = true;
  for (const GroupLine& line : lines) {
    if (line.controllers.empty()) add_folders(mounts, line.path, chain.folders);
  }
  return chain;
}

std::optional<int64_t> number_in(const std::string& file) {
  const auto text = read_small_file(file);
  return text ? parse_int64(trim(*text)) : std::nullopt;  // "max" is no number
}

struct Quota {
  double cpus;
  std::string file;
};

std::optional<Quota> quota_in(const std::string& folder, bool second) {
  const std::string file = folder + (second ? "/cpu.max" : "/cpu.cfs_quota_us");
  std::optional<int64_t> quota;
  std::optional<int64_t> period;
  if (second) {
    const std::string line(trim(read_small_file(file).value_or("")));
    const size_t blank = line.find(' ');
    if (blank == line.npos) return std::nullopt;
    quota = parse_int64(line.substr(0, blank));
    period = parse_int64(line.substr(blank + 1));
  } else {
    quota = number_in(file);
    period = number_in(folder + "/cpu.cfs_period_us");
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return Quota{static_cast<double>(*quota) / static_cast<double>(*period), file};
}

// Returns the bytes of files in memory that the kernel drops first, or 0.
int64_t droppable_bytes(const std::string& folder, bool second) {
  std::istringstream lines(read_small_file(folder + "/memory.stat").value_or(""));
  const std::string wanted = second ? "inactive_file" : "total_inactive_file";
  std::string name;
  for (int64_t bytes = 0; lines >> name >> bytes;) {
    if (name == wanted) return bytes;
  }
  return 0;
}

// Returns the limit that leaves the least.
std::optional<GroupLimit> strictest(const GroupChain& chain, const char* most_file,
                                    const char* used_file) {
  std::optional<GroupLimit> out;
  for (const std::string& folder : chain.folders) {
    const std::string file = folder + "/" + most_file;
    const auto most = number_in(file);
    if (!most || *most < 0 || *most >= kNoLimit) continue;
    const int64_t counted = number_in(folder + "/" + used_file).value_or(0);
    const int64_t used = std::max<int64_t>(0, counted - droppable_bytes(folder, chain.second));
    if (!out || *most - used < out->most - out->used) out = GroupLimit{*most, used, file};
  }
  return out;
}

std::vector<int> cpuset_of(const GroupChain& chain) {
  for (const std::string& folder : chain.folders) {
    for (const char* file : {"/cpuset.cpus.effective", "/cpuset.effective_cpus", "/cpuset.cpus"}) {
      const auto text = read_small_file(folder + file);
      if (!text) continue;
      auto cpus = parse_cpu_list(*text);
      if (cpus && !cpus->empty()) return std::move(*cpus);
    }
  }
  return {};
}

}  // namespace

GroupLimits read_group_limits(const std::string& root) {
  GroupLimits limits;
  const GroupChain cpu = chain_of(root, "cpu");
  for (const std::string& folder : cpu.folders) {
    const auto quota = quota_in(folder, cpu.second);
    if (!quota || (limits.cpus && *limits.cpus <= quota->cpus)) continue;
    limits.cpus = quota->cpus;
    limits.cpus_file = quota->file;
  }
  const GroupChain memory = chain_of(root, "memory");
  limits.memory = memory.second
                      ? strictest(memory, "memory.max", "memory.current")
                      : strictest(memory, "memory.limit_in_bytes", "memory.usage_in_bytes");
  limits.pids = strictest(chain_of(root, "pids"), "pids.max", "pids.current");
  limits.cpuset = cpuset_of(chain_of(root, "cpuset"));
  return limits;
}

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

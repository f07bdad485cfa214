#include "cli/doctor/host_facts.h"

#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "cli/doctor/within.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/device/device.h"
#include "common/host/binding.h"
#include "common/host/kernel_files.h"
#include "common/net/key_file.h"

namespace pushpull {
namespace {

constexpr double kDriverSeconds = 5.0;

// The first line is "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 ...", or with the open
// modules "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build ...".
std::string driver_version(const std::string& text) {
  std::istringstream words(text.substr(0, text.find('\n')));
  for (std::string word; words >> word;) {
    const bool digits = word.find_first_not_of("0123456789.") == word.npos;
    if (digits && word.find('.') != word.npos) return word;
  }
  return text.empty() ? "" : "unknown";
}

// Returns "Model" of each GPU, in the order of their PCI addresses.
std::vector<std::string> gpu_names(const std::string& root) {
  std::vector<std::string> folders;
  std::error_code absent;
  std::filesystem::directory_iterator gpu(root + "/proc/driver/nvidia/gpus", absent);
  for (; !absent && gpu != std::filesystem::directory_iterator(); gpu.increment(absent)) {
    folders.push_back(gpu->path());
  }
  std::ranges::sort(folders);
  std::vector<std::string> names;
  for (const std::string& folder : folders) {
    std::istringstream lines(read_small_file(folder + "/information").value_or(""));
    std::string name = "unknown GPU";
    for (std::string line; std::getline(lines, line);) {
      constexpr std::string_view kModel = "Model:";
      if (line.starts_with(kModel)) name = printable(trim(line.substr(kModel.size())));
    }
    names.push_back(name);
  }
  return names;
}

// Stays loaded: the driver's library starts threads.
void ask_library(GpuFacts& facts) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    facts.library_error = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc's is per thread
    return;
  }
  facts.has_library = true;
  using Version = int (*)(int*);
  const auto version = reinterpret_cast<Version>(dlsym(library, "cuDriverGetVersion"));
  if (version == nullptr || version(&facts.cuda_version) != 0) {
    facts.library_error = "it does not tell its version";
  }
}

GpuFacts ask_driver(const std::string& root) {
  GpuFacts facts;
  facts.driver = driver_version(read_small_file(root + "/proc/driver/nvidia/version").value_or(""));
  facts.names = gpu_names(root);
  ask_library(facts);
  return facts;
}

}  // namespace

GpuFacts read_gpu_facts(const std::string& root) {
  auto found = within<GpuFacts>(kDriverSeconds, [root] { return ask_driver(root); });
  GpuFacts facts = found ? std::move(*found) : GpuFacts{};
  facts.timed_out = !found;
  const char* const visible =
      std::getenv("CUDA_VISIBLE_DEVICES");  // NOLINT(concurrency-mt-unsafe): no writer
  if (visible != nullptr) facts.visible = visible;
  facts.built_with_cuda = device::compiled();
  return facts;
}

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
  facts.no_user_key = why_no_user_key();
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

#include "common/host/cores.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <system_error>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/host/kernel_files.h"
#include "common/host/resources.h"

namespace pushpull {

namespace {

constexpr int kMaxUseful = 16;
constexpr int kMostCpusOfAHost = 65536;
constexpr int64_t kMostOfAShare = 65536;

std::atomic<int64_t> sharing_processes = 1;

struct FreeSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, FreeSet>;

// The kernel refuses a set that is smaller than its own, so tries larger ones.
std::vector<int> affinity() {
  for (int cpus = 1024; cpus <= kMostCpusOfAHost; cpus *= 2) {
    const CpuSet set(CPU_ALLOC(cpus));
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    CPU_ZERO_S(bytes, set.get());
    if (sched_getaffinity(0, bytes, set.get()) != 0) {
      if (errno == EINVAL) continue;
      break;
    }
    std::vector<int> out;
    for (int cpu = 0; cpu < cpus; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set.get())) out.push_back(cpu);
    }
    return out;
  }
  return {0};
}

std::vector<int> online_cpus(const std::string& root) {
  const auto text = read_small_file(root + "/sys/devices/system/cpu/online");
  const auto cpus = text ? parse_cpu_list(*text) : std::nullopt;
  return cpus.value_or(std::vector<int>());
}

int share_of_environment() {
  const char* text = std::getenv("PUSHPULL_CORES");  // NOLINT(concurrency-mt-unsafe): no writer
  const auto share = parse_int64(text == nullptr ? "" : text);
  return share && *share > 0 && *share <= kMostOfAShare ? static_cast<int>(*share) : 0;
}

}  // namespace

double Cores::given() const {
  const auto cores = static_cast<double>(cpus.size());
  return quota ? std::min(*quota, cores) : cores;
}

int Cores::count() const {
  const int whole = std::max(1, static_cast<int>(given()));
  return share > 0 ? std::min(share, whole) : whole;
}

Cores read_cores(const std::string& root) {
  Cores cores;
  cores.cpus = affinity();
  const GroupLimits limits = read_group_limits(root);
  cores.quota = limits.cpus;
  cores.allowed = limits.cpuset.empty() ? online_cpus(root) : limits.cpuset;
  cores.share = share_of_environment();
  return cores;
}

CpuMask::CpuMask(const std::vector<int>& cpus) {
  constexpr int kBits = 8 * sizeof(words_[0]);
  const int most = cpus.empty() ? 0 : cpus.back();
  words_.resize(static_cast<size_t>(most / kBits) + 1);
  for (const int cpu : cpus) words_[static_cast<size_t>(cpu / kBits)] |= 1UL << (cpu % kBits);
}

bool CpuMask::bind() const {
  return syscall(SYS_sched_setaffinity, 0, words_.size() * sizeof(words_[0]), words_.data()) == 0;
}

void bind_to(const std::vector<int>& cpus) {
  if (CpuMask(cpus).bind()) return;
  throw Error(ErrorCode::kFailed, "[bind] cannot use CPUs " + cpu_list_text(cpus) +
                                      " alone: " + std::generic_category().message(errno));
}

const Cores& own_cores() {
  static const Cores cores = [] {
    Cores own = read_cores();
    const int64_t processes = sharing_processes.load();
    if (own.share == 0 && processes > 1) {
      own.share = static_cast<int>(std::max<int64_t>(1, own.count() / processes));
    }
    return own;
  }();
  return cores;
}

void share_own_cores(int64_t processes) { sharing_processes = std::max<int64_t>(1, processes); }

std::string more_threads_text(int64_t workers, int64_t threads, const Cores& cores) {
  if (workers * threads <= cores.count()) return "";
  std::string text = "more threads than cores: " + plural(workers, "worker");
  if (threads > 1) text += " with " + plural(threads, "compute thread");
  text += (threads > 1 && workers > 1 ? " each, " : ", ") + plural(cores.count(), "core");
  text += " (CPUs " + cpu_list_text(cores.cpus);
  if (cores.quota) text += ", quota " + print_real(*cores.quota);
  return text + "): they take turns, and each step waits for the last one";
}

std::string checked_threads_text(int64_t workers, int64_t threads, const Cores& cores,
                                 bool allowed) {
  const std::string text = more_threads_text(workers, threads, cores);
  if (text.empty() || threads == 1 || allowed) return text;
  const int64_t most = std::max<int64_t>(1, cores.count() / workers);
  throw Error(ErrorCode::kUsage,
              "[threads] " + text + ", up to a hundred times as long: take threads = " +
                  std::to_string(most) + ", or accept that with --oversubscribe");
}

int useful_threads(int64_t asked) {
  if (asked > 0) return static_cast<int>(asked);
  return std::min(own_cores().count(), kMaxUseful);
}

}  // namespace pushpull

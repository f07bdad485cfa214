// The cores that this process may use: its affinity, the CPU quota of its control groups, and its share where several
// processes of a job have the same cores. All programs choose their numbers of threads by this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pushpull {

// The place of a task among those of its host. Plain data.
//
// The default is a process that was started alone.
struct TaskOnHost {
  int64_t rank = 0;
  int64_t size = 0;  // 0: unknown
};

struct Cores {
  std::vector<int> cpus;        // of the affinity, logical CPUs in ascending order
  std::vector<int> allowed;     // CPUs that the affinity could name: of the cpuset, or all online
  std::optional<double> quota;  // CPU seconds per second; absent: no limit
  int share = 0;                // cores that are meant for this process; 0: all

  // Returns the CPU seconds per second that this process can get at most.
  double given() const;
  // Returns the number of whole cores for the threads of this process, at least 1. More threads than the quota would be
  // stopped for the rest of each period.
  int count() const;
  // Returns true if the launcher or taskset(1) has chosen among the CPUs for this process.
  bool is_bound() const { return cpus.size() < allowed.size(); }
};

// Reads the cores of this process, with the share that PUSHPULL_CORES names. Any thread.
//   root: in front of /proc and /sys, for tests.
Cores read_cores(const std::string& root = "");

// A set of CPUs as the kernel takes it.
class CpuMask {
 public:
  explicit CpuMask(const std::vector<int>& cpus);
  // Sets the affinity of the calling thread, and of threads that it starts from now on. Allocates nothing, so it may be
  // called between fork and exec. Returns false with errno if the kernel refuses.
  bool bind() const;

 private:
  std::vector<unsigned long> words_;  // NOLINT(google-runtime-int): the kernel's type
};

// Binds the calling thread. Throws Error(kFailed) with the CPUs and the reason.
void bind_to(const std::vector<int>& cpus);

// Returns the cores of this process, read at the first call. Thread-safe.
const Cores& own_cores();
// Divides the cores of this process by the number of processes that have the same ones. Call it in main before the
// first own_cores().
void share_own_cores(int64_t processes);

// Returns a line for users if `workers` with `threads` compute threads each have fewer cores, or "".
std::string more_threads_text(int64_t workers, int64_t threads, const Cores& cores);

// Returns the same, to be shown. Throws Error(kUsage) with it if the threads are several for each worker: the kernels of
// oneDNN's threads wait for each other in loops, and a step takes up to a hundred times as long.
//   allowed: --oversubscribe was given.
std::string checked_threads_text(int64_t workers, int64_t threads, const Cores& cores,
                                 bool allowed);

// Returns the number of threads for a server's updates: `asked`, or if that is 0, one per core of own_cores(), at most
// 16. Beyond that memory bandwidth is the limit.
int useful_threads(int64_t asked);

}  // namespace pushpull

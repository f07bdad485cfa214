// The facts of this host that a process depends on: cores, memory, limits, GPUs. Plain data, and one function that reads
// it; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/doctor/gpu_facts.h"
#include "common/host/cgroup.h"
#include "common/host/cores.h"

namespace pushpull {

// Soft and hard limit of setrlimit(2); INT64_MAX: unlimited.
struct Limits {
  int64_t soft = 0;
  int64_t hard = 0;
};

struct HostFacts {
  std::string host;
  Cores cores;
  int numa_nodes = 1;  // that the CPUs of the affinity belong to
  GroupLimits groups;
  int64_t memory_bytes = 0;          // of the host
  int64_t available_bytes = 0;       // without swapping
  std::optional<int64_t> shm_bytes;  // /dev/shm; absent: it cannot be examined
  int64_t shm_free_bytes = 0;
  Limits files;      // open files
  Limits processes;  // of the user, with threads
  Limits locked;     // bytes
  bool infiniband = false;
  GpuFacts gpus;
};

//   root: in front of /proc and /sys, for tests; limits and /dev/shm are those of this process.
HostFacts read_host_facts(const std::string& root = "");

// Returns the bytes that this process can still allocate: of the host, and of its control groups.
int64_t free_memory(const HostFacts& facts);

}  // namespace pushpull

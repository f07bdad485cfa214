// The facts of this host that a process depends on, and the form in which a check reports what it
// found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/host/cores.h"
#include "common/host/resources.h"

namespace pushpull {

// The facts of this host that a process depends on: cores, memory, limits, GPUs. Plain data, and one function that reads
// it; any thread.

// The GPUs of this host and their driver, without CUDA: from /proc/driver/nvidia and the driver's library. Any thread.
struct GpuFacts {
  std::string driver;  // version of the kernel's module: "535.129.03"; "": none is loaded
  std::vector<std::string> names;  // of each GPU: "NVIDIA A100-SXM4-40GB"
  bool has_library = false;        // the driver's library has been loaded
  int cuda_version = 0;       // that the driver's library supports: 12020 is 12.2; 0: not known
  std::string library_error;  // why the driver's library cannot be used; "" if it can
  bool timed_out = false;     // the driver has not answered
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES
  bool built_with_cuda = false;        // this program
};

// Reads the files of the driver under `root`, and loads its library. Waits at most 5 s.
GpuFacts read_gpu_facts(const std::string& root = "");

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
  std::string no_user_key;  // why the user's own key can be neither read nor made; "": it can
  GpuFacts gpus;
};

//   root: in front of /proc and /sys, for tests; limits and /dev/shm are those of this process.
HostFacts read_host_facts(const std::string& root = "");

// Returns the bytes that this process can still allocate: of the host, and of its control groups.
int64_t free_memory(const HostFacts& facts);

// A finding of `pushpull doctor`: the result of one check and, if something is wrong, the remedy.
// Plain data.
struct Finding {
  enum Level { kOk, kWarning, kError };
  Level level = kOk;
  std::string check;  // one or two words: "port", "version", "server 1"
  std::string text;
  ErrorCode code = ErrorCode::kFailed;  // exit code if level is kError
};

inline Finding fine(std::string check, std::string text) {
  return {Finding::kOk, std::move(check), std::move(text)};
}
inline Finding warning(std::string check, std::string text) {
  return {Finding::kWarning, std::move(check), std::move(text)};
}
inline Finding wrong(std::string check, std::string text, ErrorCode code) {
  return {Finding::kError, std::move(check), std::move(text), code};
}

}  // namespace pushpull

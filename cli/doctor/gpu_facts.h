// The GPUs of this host and their driver, without CUDA: from /proc/driver/nvidia and the driver's library. Any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace pushpull {

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

}  // namespace pushpull

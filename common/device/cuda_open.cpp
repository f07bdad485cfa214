// Enumerates CUDA devices and checks whether this program can use one.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/device/cuda_check.h"
#include "common/device/cuda_kernels.h"
#include "common/device/device.h"

namespace pushpull::device {

namespace {

// 13000 -> "13.0"
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Explains why the driver reports no devices.
std::string why_none(cudaError_t status) {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (driver == 0) return "there is no NVIDIA driver here";
  if (status == cudaErrorInsufficientDriver) {
    return "the NVIDIA driver is for CUDA " + version_text(driver) + " and this program for CUDA " +
           version_text(CUDART_VERSION) + "; update the driver, or build with an older toolkit";
  }
  if (status == cudaSuccess || status == cudaErrorNoDevice) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return "the NVIDIA driver shows no device" +
           (visible == nullptr
                ? std::string()
                : " (CUDA_VISIBLE_DEVICES is \"" + printable(std::string(visible)) + "\")");
  }
  return "the NVIDIA driver failed: " + std::string(cudaGetErrorString(status));
}

[[noreturn]] void refuse(const DeviceName& name, const std::string& why) {
  throw Error(ErrorCode::kDevice, "[device] " + name.to_string() + " cannot be used: " + why);
}

// The devices that this process has opened. They are never closed: their contexts stay until its end.
class Opened {
 public:
  void add(int index) {
    const std::lock_guard lock(mutex_);
    indices_.insert(index);
  }
  std::set<int> indices() {
    const std::lock_guard lock(mutex_);
    return indices_;
  }

 private:
  std::mutex mutex_;
  std::set<int> indices_;
};

Opened& opened() {
  static Opened all;
  return all;
}

// Returns the compute capability as nvcc writes it: "90".
std::string capability_text(int index) {
  int major = 0;
  int minor = 0;
  PP_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
  PP_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index));
  return std::to_string(major) + std::to_string(minor);
}

}  // namespace

bool compiled() { return true; }

const char* architectures() { return PUSHPULL_CUDA_ARCHITECTURES; }

int count(std::string* why) {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaSuccess && devices > 0) return devices;
  if (why != nullptr) *why = why_none(status);
  cudaGetLastError();
  return 0;
}

// The thread's device changes: each use of a device sets it anew.
MemoryUse memory_use() {
  MemoryUse use;
  for (const int index : opened().indices()) {
    size_t free = 0;
    size_t total = 0;
    if (cudaSetDevice(index) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess) {
      cudaGetLastError();  // a device that has failed is reported where it computes
      continue;
    }
    use.used_bytes += static_cast<int64_t>(total - free);
    use.total_bytes += static_cast<int64_t>(total);
  }
  return use;
}

std::shared_ptr<Device> open(const DeviceName& name) {
  PP_ASSERT(name.kind == DeviceName::kCuda);
  std::string why;
  const int devices = count(&why);
  if (devices == 0) refuse(name, why + "; --device cpu computes without one");
  if (name.index >= devices) {
    std::string there;
    for (int i = 0; i < devices; ++i) there += (i == 0 ? "" : ", ") + device_text(i);
    refuse(name, "this machine has " + there);
  }
  use_device(name.index);
  const cudaError_t status = probe_code();
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction ||
      status == cudaErrorUnsupportedPtxVersion || status == cudaErrorInvalidPtx) {
    cudaGetLastError();
    const std::string capability = capability_text(name.index);
    refuse(name, device_text(name.index) + " is of architecture " + capability +
                     " and this program for " PUSHPULL_CUDA_ARCHITECTURES
                     "; configure it with -DCMAKE_CUDA_ARCHITECTURES=" +
                     capability);
  }
  check(status, "cudaFuncGetAttributes(add_kernel)");
  opened().add(name.index);
  return make_cuda_device(name.index);
}

}  // namespace pushpull::device

// Checks CUDA calls, and owns CUDA's handles.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/device/device.h"

namespace pushpull::device {

// Checks CUDA calls: a failure becomes Error(kDevice) with file, line, call and device. Any thread.

// Throws Error(kDevice) "[cuda] cudaMemcpyAsync at models/ops/cuda/linear.cpp:31 on cuda:0 (NVIDIA
// H200): ...".
//   library: the tag: "cuda", "cublasLt" or "cudnn".
//   call: its source text; the message omits the arguments.
[[noreturn]] void cuda_failed(const char* library, std::string_view why, std::string_view call,
                              const char* file, int line);

// file, line: of the caller. (clang-tidy 14 has no std::source_location.)
inline void check(cudaError_t status, std::string_view call, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (status != cudaSuccess) cuda_failed("cuda", cudaGetErrorString(status), call, file, line);
}

#define PP_CUDA(call) ::pushpull::device::check((call), #call)
// Use after kernel<<<...>>>(...): throws if the launch was refused. Errors inside the kernel
// surface at a later call.
#define PP_CUDA_LAUNCHED(kernel) ::pushpull::device::check(cudaGetLastError(), kernel)

// For destructors, which must not throw: logs the failure. A run of identical failures, usual once
// a device is lost, is logged once.
void log_failed_end(const char* what, int status, const char* why);

// Returns "cuda:0 (NVIDIA H200)".
std::string device_text(int index);

// Owning CUDA handles, and a function that selects the calling thread's device.

// The CUDA handles behind a Device or Stream made by `open`, for code that calls CUDA libraries.
// Any thread.

// Returns a handle that is valid as long as the stream.
cudaStream_t native_stream(const Stream& stream);
// Returns the index that use_device takes.
int native_index(const Device& device);

// Returns the architectures that this program was built for: "80-real, 90-real, 90-virtual".
const char* architectures();

// Like `open`, without its checks.
std::shared_ptr<Device> make_cuda_device(int index);

// Destroy: releases a handle and returns a status, 0 on success.
template <class Handle, auto Destroy>
class UniqueHandle {
 public:
  UniqueHandle() = default;
  explicit UniqueHandle(Handle handle) : handle_(handle) {}
  ~UniqueHandle() { reset(); }
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(std::exchange(other.handle_, Handle{})) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, Handle{});
    }
    return *this;
  }

  Handle get() const { return handle_; }
  // Releases the current handle. Returns the address to pass to a function that creates one.
  Handle* put() {
    reset();
    return &handle_;
  }
  void reset() {
    if (handle_ == Handle{}) return;
    const auto status = static_cast<int>(Destroy(std::exchange(handle_, Handle{})));
    // at process exit the CUDA runtime may already be unloaded
    if (status != 0 && status != static_cast<int>(cudaErrorCudartUnloading)) {
      log_failed_end("a handle", status, nullptr);
    }
  }

 private:
  Handle handle_{};
};

using CudaStream = UniqueHandle<cudaStream_t, cudaStreamDestroy>;
using CudaEvent = UniqueHandle<cudaEvent_t, cudaEventDestroy>;
using CudaGraph = UniqueHandle<cudaGraph_t, cudaGraphDestroy>;
using CudaGraphExec = UniqueHandle<cudaGraphExec_t, cudaGraphExecDestroy>;

// Makes `index` the device of the calling thread. Every function that uses CUDA calls this first.
// The previous device is not restored: no code depends on it, and selecting device 0 again would
// create a context of hundreds of megabytes there in a process that uses only another device.
inline void use_device(int index) { PP_CUDA(cudaSetDevice(index)); }

}  // namespace pushpull::device

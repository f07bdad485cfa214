// Owners of CUDA's handles, and the device of the calling thread.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "common/device/cuda/check.h"

namespace pushpull::device {

// Destroy: a function of the handle that gives a status, 0 for success.
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
  // For a function that makes one.
  Handle* put() {
    reset();
    return &handle_;
  }
  void reset() {
    if (handle_ == Handle{}) return;
    const auto status = static_cast<int>(Destroy(std::exchange(handle_, Handle{})));
    // at the end of the process CUDA may be gone before we are
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

// Makes `index` the device of the calling thread. Opens every function that uses CUDA. It is not
// set back: nobody counts on an earlier one, and setting device 0 back would make a context there,
// of hundreds of megabytes, in a process that only uses another.
inline void use_device(int index) { PP_CUDA(cudaSetDevice(index)); }

}  // namespace pushpull::device

// Checks CUDA calls: a failure becomes Error(kDevice) with file, line, call and device. Any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

namespace pushpull::device {

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

}  // namespace pushpull::device

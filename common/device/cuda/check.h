// The check around every call of CUDA: what fails becomes Error(kDevice) with file, call and
// device.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

namespace pushpull::device {

// Throws Error(kDevice) "[cuda] cudaMemcpyAsync at models/ops/cuda/linear.cpp:31 on cuda:0 (NVIDIA
// H200): ...".
//   library: tag, "cuda", "cublasLt" or "cudnn".
//   call: as it stands in the source; its arguments are left out.
[[noreturn]] void cuda_failed(const char* library, std::string_view why, std::string_view call,
                              const char* file, int line);

// file, line: of the caller. (Not std::source_location, which clang-tidy 14 does not have.)
inline void check(cudaError_t status, std::string_view call, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (status != cudaSuccess) cuda_failed("cuda", cudaGetErrorString(status), call, file, line);
}

#define PP_CUDA(call) ::pushpull::device::check((call), #call)
// Behind kernel<<<...>>>(...): a launch that was refused. What a kernel does wrong shows at a later
// call.
#define PP_CUDA_LAUNCHED(kernel) ::pushpull::device::check(cudaGetLastError(), kernel)

// For destructors, which log and finish.
void log_failed_end(const char* what, int status, const char* why);

// "cuda:0 (NVIDIA H200)"
std::string device_text(int index);

}  // namespace pushpull::device

#include "common/device/cuda_check.h"

#include <atomic>
#include <memory>

#include "common/base/console.h"
#include "common/base/error.h"

namespace pushpull::device {

namespace {

// Returns the path relative to the source root, whether the compiler was given an absolute or a
// relative path.
std::string_view from_root(std::string_view file) {
  constexpr std::string_view kRoot = PUSHPULL_SOURCE_ROOT;
  constexpr std::string_view kUp = "../";
  if (file.starts_with(kRoot)) file.remove_prefix(kRoot.size());
  while (file.starts_with(kUp)) file.remove_prefix(kUp.size());
  return file;
}

}  // namespace

std::string device_text(int index) {
  std::string text = "cuda:" + std::to_string(index);
  const auto properties = std::make_unique<cudaDeviceProp>();
  if (cudaGetDeviceProperties(properties.get(), index) != cudaSuccess) return text;
  return text + " (" + properties->name + ")";
}

void cuda_failed(const char* library, std::string_view why, std::string_view call, const char* file,
                 int line) {
  // Clears the error: if the caller survives it (out of memory, say), it must not surface at the
  // next check of a launch.
  cudaGetLastError();
  int index = 0;
  cudaGetDevice(&index);
  throw Error(ErrorCode::kDevice, "[" + std::string(library) + "] " +
                                      std::string(call.substr(0, call.find('('))) + " at " +
                                      std::string(from_root(file)) + ":" + std::to_string(line) +
                                      " on " + device_text(index) + ": " + std::string(why));
}

void log_failed_end(const char* what, int status, const char* why) {
  static std::atomic<int> latest{0};
  if (latest.exchange(status) == status) return;
  Log("device").warn("[cuda] releasing " + std::string(what) + " failed with " +
                     std::to_string(status) + (why == nullptr ? "" : std::string(": ") + why));
}

}  // namespace pushpull::device

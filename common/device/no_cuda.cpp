// Replaces the files cuda_*.cpp in a build without CUDA.
#include "common/base/error.h"
#include "common/device/device.h"

namespace pushpull::device {

namespace {

constexpr const char* kWhy = "this build has no CUDA in it";

}  // namespace

bool compiled() { return false; }

int count(std::string* why) {
  if (why != nullptr) *why = kWhy;
  return 0;
}

MemoryUse memory_use() { return {}; }

std::shared_ptr<Device> open(const DeviceName& name) {
  throw Error(ErrorCode::kDevice, "[device] " + name.to_string() + " cannot be used: " + kWhy +
                                      "; build it where nvcc is found, or compute on --device cpu");
}

}  // namespace pushpull::device

// Replaces CUDA in the programs of this folder: devices without hardware, on which the processor's
// operations run in an order drawn from a seed. Variables of the environment:
//   FAKE_DEVICES     number of devices (2)
//   FAKE_SEED        seed of the order (1)
//   FAKE_LOST_AFTER  pieces of work after which a device is lost (never)
//   FAKE_MOST_PAGEABLE  bytes of one copy of unregistered host memory (any); more is an error
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common/base/error.h"
#include "common/device/device.h"
#include "models/ops/ops.h"
#include "tests/device/fake_device.h"
#include "tests/models/queued_backend.h"

namespace pushpull {

namespace {

int64_t number(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::stoll(text);
}

}  // namespace

namespace device {

bool compiled() { return true; }

int count(std::string* why) {
  const auto devices = static_cast<int>(number("FAKE_DEVICES", 2));
  if (devices == 0 && why != nullptr) *why = "FAKE_DEVICES is 0";
  return devices;
}

namespace {

std::atomic<int64_t> opened_devices = 0;

}  // namespace

// Each opened device has 1 GiB, of which a quarter is in use.
MemoryUse memory_use() {
  constexpr int64_t kGib = int64_t{1} << 30;
  return {opened_devices * kGib / 4, opened_devices * kGib};
}

// Opening a device again returns the same one: a lost device is lost for the whole process.
std::shared_ptr<Device> open(const DeviceName& name) {
  if (name.index >= count()) {
    throw Error(ErrorCode::kDevice, "[device] " + name.to_string() + " cannot be used: there are " +
                                        std::to_string(count()) + " fakes");
  }
  static std::mutex mutex;
  static std::map<int, std::shared_ptr<Device>> opened;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Device>& device = opened[name.index];
  if (!device) {
    FakeOptions options;
    options.seed = static_cast<uint64_t>(number("FAKE_SEED", 1) + name.index);
    options.lost_after = number("FAKE_LOST_AFTER", -1);
    options.index = name.index;
    options.max_pageable = static_cast<size_t>(number("FAKE_MOST_PAGEABLE", INT64_MAX));
    static const auto pages = std::make_shared<RegisteredPages>();
    options.pages = pages;
    device = std::make_shared<FakeDevice>(options);
    ++opened_devices;
  }
  return device;
}

}  // namespace device

namespace ops {

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options) {
  if (options.precision != Precision::kFp32) {
    throw Error(ErrorCode::kUsage, "[models] a fake device computes in fp32 only");
  }
  return make_queued_backend(device::open(options.device), options.threads);
}

}  // namespace ops

}  // namespace pushpull

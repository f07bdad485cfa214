#include "worker/device_memory.h"

#include <memory>
#include <string>
#include <utility>

#include "common/device/device.h"
#include "common/log.h"
#include "models/device_step.h"

namespace pushpull {

namespace {

void warn(const device::Device& device, const std::string& why) {
  Log("worker").warn("weights take longer to " + device.name() + ": " + why);
}

}  // namespace

FloatAllocator weights_memory(Model& model) {
  DeviceStep* const step = model.device_step();
  if (step == nullptr) return heap_floats;
  std::shared_ptr<device::Device> device = step->device();
  return device::registered(device, heap_floats,
                            [device](const std::string& why) { warn(*device, why); });
}

PagesMapped weights_mapped(Model& model) {
  DeviceStep* const step = model.device_step();
  if (step == nullptr) return {};
  // the device lives as long as what it has registered
  struct Pages {
    std::shared_ptr<device::Device> device;
    std::shared_ptr<void> registration;
  };
  return [device = step->device(), said = false](std::byte* first,
                                                 size_t bytes) mutable -> std::shared_ptr<void> {
    std::string why;
    auto pages = std::make_shared<Pages>();
    pages->device = device;
    pages->registration = device->register_pages(first, bytes, device::Access::kReadOnly, why);
    if (!pages->registration && !std::exchange(said, true)) warn(*device, why);
    return pages;
  };
}

}  // namespace pushpull

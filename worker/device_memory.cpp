#include "worker/device_memory.h"

#include <string>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/log.h"
#include "models/device_step.h"

namespace pushpull {

namespace {

// Far longer than a copy takes, also where others use the device.
constexpr int64_t kDeadlineMs = 300'000;

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

std::shared_ptr<device::Device> device_to_share(Model& model, const Job& job) {
  const std::vector<DeviceStep*> steps = model.device_steps();
  const bool host_sees_them =
      job.codec != Codec{} || !job.codec_tensors.rules.empty() || job.pull_codec != Codec{} ||
      job.strategy.kind == StrategyKind::kLocal || job.strategy.kind == StrategyKind::kAllReduce;
  return steps.size() == 1 && !host_sees_them ? steps.front()->device() : nullptr;
}

Payload copy_to_host(device::Device& device, const Payload& part) {
  PP_ASSERT(part.on_device);
  const std::shared_ptr<float[]> host = heap_floats(part.float_count());
  const auto stream = device.stream();
  stream->copy_out(part.address(), part.bytes.size(), host.get());
  stream->synchronize(kDeadlineMs);
  return {host, std::as_bytes(std::span<const float>(host.get(), part.float_count()))};
}

}  // namespace pushpull

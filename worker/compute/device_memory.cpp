#include "worker/compute/device_memory.h"

#include <string>
#include <utility>
#include <vector>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/job/job.h"
#include "models/device_step.h"
#include "models/pipeline.h"

namespace pushpull {

namespace {

// Far longer than a copy takes, even on a shared device.
constexpr int64_t kMemoryDeadlineMs = 300'000;

void warn(const device::Device& device, const std::string& why) {
  Log("worker").warn("copying weights to " + device.name() + " takes longer: " + why);
}

// Returns a device that copies whole weights, or null.
std::shared_ptr<device::Device> device_of(Model& model) {
  if (DeviceStep* const step = model.device_step()) return step->device();
  if (const Pipeline* const pipeline = model.pipeline()) return pipeline->device();
  return nullptr;
}

}  // namespace

FloatAllocator weights_memory(Model& model) {
  std::shared_ptr<device::Device> device = device_of(model);
  if (device == nullptr) return heap_floats;
  return device::registered(device, heap_floats,
                            [device](const std::string& why) { warn(*device, why); });
}

PagesMapped weights_mapped(Model& model) {
  std::shared_ptr<device::Device> device = device_of(model);
  if (device == nullptr) return {};
  return device::register_mapped(device, [device](const std::string& why) { warn(*device, why); });
}

std::shared_ptr<device::Device> device_to_share(Model& model, const Job& job) {
  const std::vector<DeviceStep*> steps = model.device_steps();
  const bool host_sees_them = job.encodes_pushes() || job.pull_codec != Codec{} ||
                              job.strategy.traits().outer_optimizer ||
                              job.strategy.traits().workers_update;
  return steps.size() == 1 && !host_sees_them ? steps.front()->device() : nullptr;
}

Payload copy_to_host(device::Device& device, const Payload& part) {
  PP_ASSERT(part.on_device);
  const std::shared_ptr<float[]> host = heap_floats(part.float_count());
  const auto stream = device.stream();
  stream->copy_out(part.address(), part.bytes.size(), host.get());
  stream->synchronize(kMemoryDeadlineMs);
  return {host, std::as_bytes(std::span<const float>(host.get(), part.float_count()))};
}

}  // namespace pushpull

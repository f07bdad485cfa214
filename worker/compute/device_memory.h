// Memory that a model's device shares: host memory that it copies to and from directly, and device
// memory that servers read. If the system refuses to register or map memory, a warning is logged
// once, and copies are slower.
#pragma once

#include <memory>

#include "common/base/buffer_pool.h"
#include "common/device/device.h"
#include "common/net/message.h"
#include "common/shm/segment.h"
#include "models/model.h"

namespace pushpull {

struct Job;

// Returns the allocator for pulled weights.
FloatAllocator weights_memory(Model& model);
// Returns the function that registers weights mapped from a server's memory with the device; empty
// if the model computes on the CPU.
PagesMapped weights_mapped(Model& model);
// Returns the device with memory that servers may read; null if there is none or several, or if the
// host must see the values (codecs, outer optimizer, updates by workers).
std::shared_ptr<device::Device> device_to_share(Model& model, const Job& job);
// Returns a copy of `part` in host memory. `part` is in device memory and must not change
// meanwhile.
Payload copy_to_host(device::Device& device, const Payload& part);

}  // namespace pushpull

// Memory that the device of a model, where it has one, shares with others: host memory that it
// copies to and from directly, and memory of its own that servers read. What the system refuses is
// said once, in a warning: copies then take longer.
#pragma once

#include <memory>

#include "common/base/buffer_pool.h"
#include "common/device/device.h"
#include "common/job/job.h"
#include "common/net/message.h"
#include "common/shm/segment.h"
#include "models/model.h"

namespace pushpull {

// For weights that come in.
FloatAllocator weights_memory(Model& model);
// For those that stay in a server's memory. Empty where the model is on the processor.
PagesMapped weights_mapped(Model& model);
// The device whose memory servers and this worker may share: null where there is none, or several,
// or where the host must see what goes to and fro.
std::shared_ptr<device::Device> device_to_share(Model& model, const Job& job);
// The same bytes in memory of the host; `part` lies on the device, and nothing writes it.
Payload copy_to_host(device::Device& device, const Payload& part);

}  // namespace pushpull

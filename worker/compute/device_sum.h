// Sums the gradients that a model leaves on a device, there and in the order of the host. Slices
// are copied on a separate stream to the memory that is sent, while backward continues; if all
// servers can read device memory, the sum stays there.
#pragma once

#include <functional>
#include <memory>

#include "models/device_step.h"
#include "worker/compute/gradient_sum.h"

namespace pushpull {

// Memory for gradients that servers read.
struct PushedMemory {
  FloatAllocator host = heap_floats;
  // Called before the first sum. Returns an allocator of device memory that all servers can read,
  // or null if some server reads host memory. May be empty.
  std::function<FloatAllocator()> device;
};

// Borrows `step`. After a node is abandoned, call step.wait() before the next begin().
std::unique_ptr<GradientSum> make_device_sum(DeviceStep& step, const TensorTable& table,
                                             const SliceMap& map, PushedMemory memory = {});

}  // namespace pushpull

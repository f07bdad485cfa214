// The sum of gradients that a model leaves on a device: they are added there, in host memory's
// order, and each slice goes on a stream of its own to the memory that is sent, while backward goes
// on. Where all servers read the device's memory it stays there.
#pragma once

#include <functional>
#include <memory>

#include "models/device_step.h"
#include "worker/compute/gradient_sum.h"

namespace pushpull {

// Memory for gradients, which servers read there.
struct PushedMemory {
  FloatAllocator host = heap_floats;
  // Asked when the first sum is begun: memory of the device that all servers read; null: some read
  // that of the host. May be empty.
  std::function<FloatAllocator()> device;
};

// step: borrowed; it must have been `wait`ed for before the sum of a node that was given up is
// begun anew.
std::unique_ptr<GradientSum> make_device_sum(DeviceStep& step, const TensorTable& table,
                                             const SliceMap& map, PushedMemory memory = {});

}  // namespace pushpull

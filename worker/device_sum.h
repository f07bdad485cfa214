// The sum of gradients that a model leaves on a device: they are added there, in host memory's
// order, and each slice goes on a stream of its own to the memory that is sent, while backward goes
// on.
#pragma once

#include <memory>

#include "models/device_step.h"
#include "worker/gradient_sum.h"

namespace pushpull {

// memory: where slices are copied to, and sent from. step: borrowed; it must have been `wait`ed for
// before the sum of a node that was given up is begun anew.
std::unique_ptr<GradientSum> make_device_sum(DeviceStep& step, const TensorTable& table,
                                             const SliceMap& map,
                                             FloatAllocator memory = heap_floats);

}  // namespace pushpull

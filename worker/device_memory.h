// Host memory that the device of a model, where it has one, copies to and from directly. The
// functions say once, in a warning, where the system refuses that: copies then take longer.
#pragma once

#include "common/buffer_pool.h"
#include "common/shm/segment.h"
#include "models/model.h"

namespace pushpull {

// For weights that come in.
FloatAllocator weights_memory(Model& model);
// For those that stay in a server's memory. Empty where the model is on the processor.
PagesMapped weights_mapped(Model& model);

}  // namespace pushpull

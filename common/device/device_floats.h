// Device memory as a FloatAllocator. Use it on the device's thread.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "common/base/buffer_pool.h"
#include "common/device/device.h"

namespace pushpull::device {

// Returns an allocator of zeroed memory on `device`; each buffer keeps `device` alive. The
// allocator throws Error(kDevice) if the device has no free memory.
inline FloatAllocator device_floats(std::shared_ptr<Device> device) {
  struct Buffer {
    std::shared_ptr<Device> device;
    Memory memory;  // destroyed first
  };
  return [device = std::move(device)](size_t floats) -> std::shared_ptr<float[]> {
    auto buffer =
        std::make_shared<Buffer>(Buffer{device, device->allocate(floats * sizeof(float))});
    float* const first = buffer->memory.floats();
    return {std::move(buffer), first};
  };
}

}  // namespace pushpull::device

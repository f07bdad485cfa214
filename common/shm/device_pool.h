// Memory of a device that other processes read where it lies, as an allocator of buffers which
// knows of an address in which segment it is: SegmentPool for a device. `find` and the end of
// buffers on any thread, `get` on the device's.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "common/device/device.h"
#include "common/shm/segment_index.h"

namespace pushpull {

class DevicePool {
 public:
  // failed: told once, in one line, that others cannot read what the device gives.
  DevicePool(std::shared_ptr<device::Device> device,
             std::function<void(const std::string& why)> failed);

  // Device memory, which lives as long as the buffer does; may outlive the pool. Throws
  // Error(kDevice) where the device has no more.
  std::shared_ptr<float[]> get(size_t floats);

  using Place = SegmentIndex::Place;
  Place find(std::span<const std::byte> bytes) const { return index_.find(bytes); }

  const std::shared_ptr<device::Device>& device() const { return device_; }

 private:
  const std::shared_ptr<device::Device> device_;
  SegmentIndex index_;
  std::function<void(const std::string&)> failed_;
  std::once_flag told_;
};

}  // namespace pushpull

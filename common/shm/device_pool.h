// A SegmentPool for a device: allocates device memory that other processes read in place, and finds
// the segment of an address. Call `get` on the device's thread; `find` and the destruction of
// buffers are safe on any thread.
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
  // failed: called once with one line if other processes cannot read the device's memory.
  DevicePool(std::shared_ptr<device::Device> device,
             std::function<void(const std::string& why)> failed);

  // Returns device memory that lives as long as the buffer, which may outlive the pool. Throws
  // Error(kDevice) if the device has no free memory.
  std::shared_ptr<float[]> get(size_t floats);

  using Place = SegmentIndex::Place;
  Place find(std::span<const std::byte> bytes) const { return index_.find(bytes); }

  const std::shared_ptr<device::Device>& device() const { return device_; }

 private:
  const std::shared_ptr<device::Device> device_;
  SegmentIndex index_;
  std::function<void(const std::string&)> failed_;
  std::once_flag reported_;
};

}  // namespace pushpull

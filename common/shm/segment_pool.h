// Allocates buffers in shared segments of this process and finds the segment of an address.
// Thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "common/device/device.h"
#include "common/shm/segment.h"

namespace pushpull {

// A SegmentPool for a device: allocates device memory that other processes read in place, and finds
// the segment of an address. Call `get` on the device's thread; `find` and the destruction of
// buffers are safe on any thread.
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

class SegmentPool {
 public:
  // failed: called once with one line if no segment can be created and buffers come from the heap
  // instead.
  explicit SegmentPool(std::function<void(const std::string& why)> failed);

  // Returns a buffer in a segment of its own, or on the heap if the system provides none. The
  // contents are undefined. The buffer may outlive the pool.
  std::shared_ptr<float[]> get(size_t floats);

  using Place = SegmentIndex::Place;
  Place find(std::span<const std::byte> bytes) const { return index_.find(bytes); }

 private:
  SegmentIndex index_;
  std::function<void(const std::string&)> failed_;
  std::once_flag reported_;
};

}  // namespace pushpull

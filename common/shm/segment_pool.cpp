#include "common/shm/segment_pool.h"

#include <utility>

#include "common/base/buffer_pool.h"
#include "common/base/error.h"
#include "common/shm/segment.h"

namespace pushpull {
namespace {

class DeviceSegment : public SharedMemory {
 public:
  DeviceSegment(device::Device& device, size_t bytes) {
    std::string handle;
    memory_ = device.allocate_shared(bytes, handle);
    // the device may allocate more than requested, and the handle exposes all of it
    description_.set_bytes(static_cast<int64_t>(bytes));
    description_.set_token(fresh_token());
    description_.set_device(device.id());
    description_.set_handle(std::move(handle));
  }

  std::byte* data() const override { return static_cast<std::byte*>(memory_.data()); }
  size_t bytes() const override { return static_cast<size_t>(description_.bytes()); }
  const wire::Segment& description() const override { return description_; }

 private:
  device::Memory memory_;
  wire::Segment description_;
};

}  // namespace

DevicePool::DevicePool(std::shared_ptr<device::Device> device,
                       std::function<void(const std::string&)> failed)
    : device_(std::move(device)), failed_(std::move(failed)) {}

// If memory cannot be shared, private memory may still be available; if not, the second allocation
// throws.
std::shared_ptr<float[]> DevicePool::get(size_t floats) {
  const size_t bytes = floats * sizeof(float);
  try {
    return index_.add(std::make_shared<const DeviceSegment>(*device_, bytes));
  } catch (const Error& e) {
    auto memory = std::make_shared<device::Memory>(device_->allocate(bytes));
    std::call_once(reported_, failed_, e.what());
    return {memory, memory->floats()};
  }
}

SegmentPool::SegmentPool(std::function<void(const std::string&)> failed)
    : failed_(std::move(failed)) {}

std::shared_ptr<float[]> SegmentPool::get(size_t floats) {
  try {
    return index_.add(std::make_shared<const Segment>(floats * sizeof(float)));
  } catch (const Error& e) {
    std::call_once(reported_, failed_, e.what());
    return heap_floats(floats);
  }
}

}  // namespace pushpull

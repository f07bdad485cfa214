// Host memory that a device copies to and from directly: buffers of their own, and pages of others.
#include <unistd.h>

#include <atomic>
#include <utility>

#include "common/device/device.h"

namespace pushpull::device {

namespace {

// Members end in the opposite order: the device lets go of the pages before they go.
struct Registered {
  std::shared_ptr<Device> device;
  std::shared_ptr<float[]> owner;
  std::shared_ptr<void> registration;
};

}  // namespace

FloatAllocator registered(std::shared_ptr<Device> device, FloatAllocator inner,
                          std::function<void(const std::string& why)> refused) {
  auto told = std::make_shared<std::atomic<bool>>(false);
  return [device = std::move(device), inner = std::move(inner), refused = std::move(refused),
          told = std::move(told)](size_t floats) -> std::shared_ptr<float[]> {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = (floats * sizeof(float) + page - 1) / page * page;
    // A page can be registered once only, so a buffer shares none with its neighbours: of one page
    // more than it needs, it takes those that are wholly its own.
    auto buffer = std::make_shared<Registered>();
    buffer->device = device;
    buffer->owner = inner((bytes + page) / sizeof(float));
    const auto address = reinterpret_cast<uintptr_t>(buffer->owner.get());
    const size_t skipped = (page - address % page) % page;
    float* first = buffer->owner.get() + skipped / sizeof(float);
    if (bytes > 0) {
      std::string why;
      buffer->registration = device->register_pages(reinterpret_cast<std::byte*>(first), bytes,
                                                    Access::kReadWrite, why);
      if (!buffer->registration && !told->exchange(true)) refused(why);
    }
    return {first, [buffer = std::move(buffer)](float*) mutable { buffer.reset(); }};
  };
}

std::function<std::shared_ptr<void>(std::byte*, size_t)> register_mapped(
    std::shared_ptr<Device> device, std::function<void(const std::string& why)> refused) {
  // the device lives as long as what it has registered
  struct Pages {
    std::shared_ptr<Device> device;
    std::shared_ptr<void> registration;
  };
  auto told = std::make_shared<std::atomic<bool>>(false);
  return [device = std::move(device), refused = std::move(refused), told = std::move(told)](
             std::byte* first, size_t bytes) -> std::shared_ptr<void> {
    std::string why;
    auto pages = std::make_shared<Pages>();
    pages->device = device;
    pages->registration = device->register_pages(first, bytes, Access::kReadOnly, why);
    if (!pages->registration && !told->exchange(true)) refused(why);
    return pages;
  };
}

}  // namespace pushpull::device

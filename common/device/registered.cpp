// Host memory that a device copies to and from directly: buffers of this process, and pages mapped
// from other processes.
#include <unistd.h>

#include <atomic>
#include <utility>

#include "common/device/device.h"

namespace pushpull::device {

namespace {

// Members are destroyed in reverse order: the registration ends before the pages are freed.
struct Registered {
  std::shared_ptr<Device> device;
  std::shared_ptr<float[]> owner;
  std::shared_ptr<void> registration;
};

}  // namespace

FloatAllocator registered(std::shared_ptr<Device> device, FloatAllocator inner,
                          std::function<void(const std::string& why)> refused) {
  auto reported = std::make_shared<std::atomic<bool>>(false);
  return [device = std::move(device), inner = std::move(inner), refused = std::move(refused),
          reported = std::move(reported)](size_t floats) -> std::shared_ptr<float[]> {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = (floats * sizeof(float) + page - 1) / page * page;
    // A page can be registered only once, so buffers must not share pages: each allocates one page
    // more than it needs and registers only the pages that it fills alone.
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
      if (!buffer->registration && !reported->exchange(true)) refused(why);
    }
    return {first, [buffer = std::move(buffer)](float*) mutable { buffer.reset(); }};
  };
}

std::function<std::shared_ptr<void>(std::byte*, size_t)> register_mapped(
    std::shared_ptr<Device> device, std::function<void(const std::string& why)> refused) {
  // keeps the device alive as long as the registration
  struct Pages {
    std::shared_ptr<Device> device;
    std::shared_ptr<void> registration;
  };
  auto reported = std::make_shared<std::atomic<bool>>(false);
  return [device = std::move(device), refused = std::move(refused), reported = std::move(reported)](
             std::byte* first, size_t bytes) -> std::shared_ptr<void> {
    std::string why;
    auto pages = std::make_shared<Pages>();
    pages->device = device;
    pages->registration = device->register_pages(first, bytes, Access::kReadOnly, why);
    if (!pages->registration && !reported->exchange(true)) refused(why);
    return pages;
  };
}

}  // namespace pushpull::device

// Weights in host memory that a device copies from.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "common/base/error.h"
#include "common/device/device.h"

namespace pushpull {

// The weights of one step on the host. A read after their end is a SIGSEGV.
class HostWeights {
 public:
  HostWeights(device::Device& device, size_t floats, bool is_registered)
      : bytes_((floats * sizeof(float) + kPage - 1) / kPage * kPage),
        first_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
        span_(static_cast<float*>(first_), floats) {
    PP_ASSERT(first_ != MAP_FAILED);
    std::ranges::fill(span_, std::numeric_limits<float>::quiet_NaN());
    std::string why;
    if (!is_registered) return;
    registration_ = device.register_pages(static_cast<std::byte*>(first_), bytes_,
                                          device::Access::kReadOnly, why);
  }
  ~HostWeights() { munmap(first_, bytes_); }
  HostWeights(const HostWeights&) = delete;
  HostWeights& operator=(const HostWeights&) = delete;

  std::span<float> span() const { return span_; }
  void release(bool is_broken) {
    std::ranges::fill(span_, std::numeric_limits<float>::quiet_NaN());
    registration_.reset();
    PP_ASSERT(is_broken || mprotect(first_, bytes_, PROT_NONE) == 0);
  }

 private:
  static constexpr size_t kPage = 4096;
  size_t bytes_;
  void* first_;
  std::span<float> span_;
  std::shared_ptr<void> registration_;
};

}  // namespace pushpull

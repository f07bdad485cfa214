// The ranges of host memory that a device can copy to and from directly. Thread-safe.
#pragma once

#include <cstddef>
#include <iterator>
#include <map>
#include <mutex>

#include "common/base/error.h"
#include "common/device/device.h"

namespace pushpull::device {

class RegisteredPages {
 public:
  // `first` to `first + bytes` must not overlap a range already added.
  void add(const std::byte* first, size_t bytes, Access access) {
    const std::lock_guard lock(mutex_);
    const auto after = ranges_.upper_bound(first);
    PP_ASSERT(after == ranges_.end() || first + bytes <= after->first);
    PP_ASSERT(after == ranges_.begin() ||
              std::prev(after)->first + std::prev(after)->second.bytes <= first);
    ranges_.emplace(first, Range{bytes, access});
  }

  void remove(const std::byte* first) {
    const std::lock_guard lock(mutex_);
    const size_t removed = ranges_.erase(first);
    PP_ASSERT(removed == 1);
  }

  // Returns true if the bytes lie within one range that the device may access in this way.
  bool hold(const void* first, size_t bytes, Access access) const {
    const auto* begin = static_cast<const std::byte*>(first);
    const std::lock_guard lock(mutex_);
    auto after = ranges_.upper_bound(begin);
    if (after == ranges_.begin()) return false;
    const auto& [start, range] = *--after;
    return begin + bytes <= start + range.bytes &&
           (access == Access::kReadOnly || range.access == Access::kReadWrite);
  }

  size_t size() const {
    const std::lock_guard lock(mutex_);
    return ranges_.size();
  }

 private:
  struct Range {
    size_t bytes;
    Access access;
  };
  mutable std::mutex mutex_;
  std::map<const std::byte*, Range> ranges_;
};

}  // namespace pushpull::device

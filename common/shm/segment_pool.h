// Allocates buffers in shared segments of this process and finds the segment of an address.
// Thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "common/shm/segment.h"
#include "common/shm/segment_index.h"

namespace pushpull {

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

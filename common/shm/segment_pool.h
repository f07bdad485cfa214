// The segments of one process as an allocator of buffers, which knows of an address in which
// segment it lies. Thread-safe.
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
  // failed: told once, in one line, that buffers come from the heap because no segment can be had.
  explicit SegmentPool(std::function<void(const std::string& why)> failed);

  // A buffer in a segment of its own, which lives as long as the buffer does; of the heap where the
  // system gives none. Contents are undefined. May outlive the pool.
  std::shared_ptr<float[]> get(size_t floats);

  using Place = SegmentIndex::Place;
  Place find(std::span<const std::byte> bytes) const { return index_.find(bytes); }

 private:
  SegmentIndex index_;
  std::function<void(const std::string&)> failed_;
  std::once_flag told_;
};

}  // namespace pushpull

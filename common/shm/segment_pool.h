// The segments of one process as an allocator of buffers, which knows of an address in which
// segment it lies. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/shm/segment.h"

namespace pushpull {

class SegmentPool {
 public:
  // failed: told once, in one line, that buffers come from the heap because no segment can be had.
  explicit SegmentPool(std::function<void(const std::string& why)> failed);

  // A buffer in a segment of its own, which lives as long as the buffer does; of the heap where the
  // system gives none. Contents are undefined. May outlive the pool.
  std::shared_ptr<float[]> get(size_t floats);

  struct Place {
    std::shared_ptr<const Segment> segment;  // null: in none
    int64_t offset = 0;                      // in bytes
  };
  Place find(std::span<const std::byte> bytes) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace pushpull

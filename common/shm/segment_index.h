// Finds the shared segment that contains an address of this process. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/net/wire.pb.h"

namespace pushpull {

// A segment, with the description that other processes need to read it.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  virtual std::byte* data() const = 0;
  // Returns the number of bytes that other processes may read.
  virtual size_t bytes() const = 0;
  virtual const wire::Segment& description() const = 0;
};

class SegmentIndex {
 public:
  SegmentIndex();

  struct Place {
    std::shared_ptr<const SharedMemory> segment;  // null if it is not in any segment
    int64_t offset = 0;                           // in bytes
  };
  // Returns the segment's memory. `find` finds the memory until its last holder releases it; it may
  // outlive the index.
  std::shared_ptr<float[]> add(std::shared_ptr<const SharedMemory> segment);
  // Returns the segment that contains all of these bytes.
  Place find(std::span<const std::byte> bytes) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace pushpull

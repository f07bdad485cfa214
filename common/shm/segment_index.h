// Memory of this process that others read, by address. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/net/wire.pb.h"

namespace pushpull {

// One piece of it, with what others need to read it.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  virtual std::byte* data() const = 0;
  // That others may read.
  virtual size_t bytes() const = 0;
  virtual const wire::Segment& description() const = 0;
};

class SegmentIndex {
 public:
  SegmentIndex();

  struct Place {
    std::shared_ptr<const SharedMemory> segment;  // null: in none
    int64_t offset = 0;                           // in bytes
  };
  // The segment's memory, found here and kept until the last holder of the result lets go, which
  // may be after the index has ended.
  std::shared_ptr<float[]> add(std::shared_ptr<const SharedMemory> segment);
  // The segment that has all of these bytes.
  Place find(std::span<const std::byte> bytes) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace pushpull

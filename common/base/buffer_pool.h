// Reusable float buffers of one size class. A buffer is shared (a socket may still be sending it)
// and goes back to the pool when its last holder lets go, on whatever thread that happens; fresh
// pages cost more than half of the bandwidth. Thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace pushpull {

// Memory for so many floats, undefined, 64-byte aligned. Lives until its last holder lets go.
using FloatAllocator = std::function<std::shared_ptr<float[]>(size_t floats)>;

// Of the heap; large ones ask for huge pages.
std::shared_ptr<float[]> heap_floats(size_t floats);

class BufferPool {
 public:
  // floats: size of every buffer.
  // allocate: where they come from, for instance memory that other processes map.
  explicit BufferPool(size_t floats, FloatAllocator allocate = heap_floats);

  size_t floats() const { return floats_; }
  // Contents are undefined.
  std::shared_ptr<float[]> get();
  // Makes so many buffers now rather than when they are first needed.
  void reserve(int count);

 private:
  struct State;
  size_t floats_;
  FloatAllocator allocate_;
  std::shared_ptr<State> state_;
};

}  // namespace pushpull

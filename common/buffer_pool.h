// Reusable float buffers of one size class. A buffer is shared (a socket may still be sending it) and goes
// back to the pool when its last holder lets go, on whatever thread that happens; fresh pages cost more than
// half of the bandwidth. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>

namespace pushpull {

class BufferPool {
 public:
  // floats: size of every buffer.
  explicit BufferPool(size_t floats);

  size_t floats() const { return floats_; }
  // Contents are undefined.
  std::shared_ptr<float[]> get();

 private:
  struct State;
  size_t floats_;
  std::shared_ptr<State> state_;
};

}  // namespace pushpull

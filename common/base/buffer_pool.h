// Reusable float buffers of one size. A buffer is shared (a socket may still be sending it) and
// returns to the pool when its last holder releases it, on whichever thread that happens. Reuse
// matters: faulting in fresh pages for every message costs more than half of the bandwidth.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>

namespace pushpull {

// Returns `floats` floats: uninitialised, 64-byte aligned, freed when the last holder releases
// them.
using FloatAllocator = std::function<std::shared_ptr<float[]>(size_t floats)>;

// There is no memory for so many bytes of floats.
class NoFloats : public std::bad_alloc {
 public:
  explicit NoFloats(int64_t bytes) : bytes_(bytes) {}
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_;
};

// Allocates on the heap. Large buffers ask for huge pages. Throws NoFloats.
std::shared_ptr<float[]> heap_floats(size_t floats);

class BufferPool {
 public:
  // floats: size of every buffer.
  // allocate: source of new buffers, for instance memory that other processes map.
  explicit BufferPool(size_t floats, FloatAllocator allocate = heap_floats);

  size_t floats() const { return floats_; }
  // Returns a free buffer, or allocates one. The contents are undefined.
  std::shared_ptr<float[]> get();
  // Allocates `count` buffers now, so that the first steps need not.
  void reserve(int count);

 private:
  struct State;
  size_t floats_;
  FloatAllocator allocate_;
  std::shared_ptr<State> state_;
};

}  // namespace pushpull

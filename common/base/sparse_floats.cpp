#include "common/base/sparse_floats.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

#include "common/base/buffer_pool.h"

namespace pushpull {

// Not calloc: it clears memory that the heap has kept, and so makes it resident.
std::shared_ptr<float[]> sparse_floats(size_t floats) {
  const size_t bytes = std::max(floats, size_t{1}) * sizeof(float);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw NoFloats(static_cast<int64_t>(bytes));
  return {static_cast<float*>(memory), [bytes](float* first) { munmap(first, bytes); }};
}

}  // namespace pushpull

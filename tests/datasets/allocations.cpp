#include "tests/datasets/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace pushpull {
namespace {
std::atomic<size_t> count{0};
std::atomic<size_t> largest{0};
}  // namespace

size_t allocation_count() { return count; }
size_t largest_allocation() { return largest; }
void reset_largest_allocation() { largest = 0; }

static void note(size_t bytes) {
  ++count;
  size_t seen = largest;
  while (bytes > seen && !largest.compare_exchange_weak(seen, bytes)) {
  }
}

}  // namespace pushpull

void* operator new(size_t bytes) {
  pushpull::note(bytes);
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1); memory != nullptr) return memory;
  throw std::bad_alloc();
}
// std::stable_sort's buffer
void* operator new(size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  pushpull::note(bytes);
  return std::malloc(bytes > 0 ? bytes : 1);
}
void* operator new[](size_t bytes) { return operator new(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

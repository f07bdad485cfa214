#include "tests/cuda_on_host/shared_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/cuda_on_host/block.h"

namespace cuda_on_host {

namespace {

constexpr size_t kArea = size_t{64} << 10;
constexpr size_t kPage = 4096;
constexpr size_t kGap = 64;  // bytes between variables
constexpr int kFill = 0xff;  // NaN as f32, f64, f16 and bf16, and -1

}  // namespace

SharedMemory::SharedMemory() {
  void* const all =
      mmap(nullptr, 2 * kArea + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) {
    std::perror("cuda_on_host: shared memory");
    std::abort();
  }
  variables_ = static_cast<std::byte*>(all);
  end_ = variables_ + 2 * kArea;
  mprotect(end_, kPage, PROT_NONE);
  std::memset(variables_, kFill, 2 * kArea);
}

void SharedMemory::begin(size_t launch_bytes) {
  std::memset(variables_, kFill, used_);
  used_ = 0;
  known_.clear();
  launch_bytes_ = launch_bytes;
  of_launch_ = end_ - (launch_bytes + 15) / 16 * 16;
  std::memset(of_launch_, kFill, static_cast<size_t>(end_ - of_launch_));
}

void* SharedMemory::variable(const char* function, int line, size_t bytes, size_t align) {
  for (const Variable& known : known_) {
    if (known.function == function && known.line == line) return known.first;
  }
  size_t whole = launch_bytes_ + bytes;
  for (const Variable& known : known_) whole += known.bytes;
  if (whole > kMaxSharedBytes) return nullptr;
  const size_t at = (used_ + kGap + align - 1) / align * align;
  used_ = at + bytes + kGap;
  known_.push_back({function, line, variables_ + at, bytes});
  return variables_ + at;
}

std::string SharedMemory::check() const {
  const auto is_filled = [](const std::byte* first, const std::byte* last) {
    return std::all_of(first, last, [](std::byte b) { return b == std::byte{kFill}; });
  };
  const std::byte* gap = variables_;
  for (const Variable& known : known_) {
    if (!is_filled(gap, known.first))
      return "a write in front of shared memory of " + std::string(known.function);
    gap = known.first + known.bytes;
  }
  if (!is_filled(gap, variables_ + used_))
    return "a write behind the shared memory of " + std::string(known_.back().function);
  return {};
}

SharedMemory& shared_memory() {
  static auto* const memory = new SharedMemory;
  return *memory;
}

}  // namespace cuda_on_host

#include "tests/device/fake_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "common/error.h"

namespace pushpull::device {

namespace {

constexpr size_t kAlignment = 256;
constexpr int kNaNByte = 0xff;  // as floats, doubles, bf16 and fp16: NaN

// Memory::Free gets an address only.
std::mutex all_mutex;
std::map<const std::byte*, std::shared_ptr<FakeMemory>>& owners() {
  static std::map<const std::byte*, std::shared_ptr<FakeMemory>> of_block;
  return of_block;
}

}  // namespace

FakeMemory::FakeMemory(size_t bytes) : size_(bytes) {
  void* pages = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  PP_ASSERT(pages != MAP_FAILED);
  first_ = static_cast<std::byte*>(pages);
}

FakeMemory::~FakeMemory() { munmap(first_, size_); }

Memory FakeMemory::allocate(size_t bytes) {
  const size_t size = std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
  size_t offset = 0;
  {
    const std::lock_guard lock(mutex_);
    size_t taken = 0;
    for (const auto& [begin, length] : used_) {
      if (begin - offset >= size) break;
      offset = begin + length;
    }
    for (const auto& [begin, length] : used_) taken += length;
    if (size_ - offset < size) {
      throw Error(ErrorCode::kDevice, "[device] fake:0 has no room for " + std::to_string(bytes) +
                                          " bytes more: " + std::to_string(size_ - taken) + " of " +
                                          std::to_string(size_) + " are free");
    }
    used_.emplace(offset, size);
  }
  std::byte* block = first_ + offset;
  {
    const Open opened(*this);
    std::memset(block, 0, size);
  }
  const std::lock_guard lock(all_mutex);
  owners().emplace(block, shared_from_this());
  return {block, bytes, &FakeMemory::free};
}

Memory FakeMemory::allocate_shared(size_t bytes, std::string& handle) {
  Memory memory = allocate(bytes);
  handle = std::to_string(reinterpret_cast<uintptr_t>(memory.data()));
  return memory;
}

std::pair<std::shared_ptr<FakeMemory>, const std::byte*> FakeMemory::find_shared(
    const std::string& handle, size_t bytes) {
  const std::lock_guard lock(all_mutex);
  for (const auto& [block, owner] : owners()) {
    if (std::to_string(reinterpret_cast<uintptr_t>(block)) != handle) continue;
    if (!owner->holds(block, bytes)) break;
    return {owner, block};
  }
  throw Error(ErrorCode::kProtocol, "[device] fake:0 shares no such memory");
}

void FakeMemory::free(void* first) {
  auto* block = static_cast<std::byte*>(first);
  std::shared_ptr<FakeMemory> owner;
  {
    const std::lock_guard lock(all_mutex);
    owner = std::move(owners().extract(block).mapped());
  }
  const auto offset = static_cast<size_t>(block - owner->first_);
  const Open opened(*owner);
  const std::lock_guard lock(owner->mutex_);
  std::memset(block, kNaNByte, owner->used_.extract(offset).mapped());
}

bool FakeMemory::holds(const void* first, size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(first);
  return begin >= first_ && begin + bytes <= first_ + size_;
}

void FakeMemory::open() {
  const std::lock_guard lock(mutex_);
  if (open_++ == 0) protect(PROT_READ | PROT_WRITE);
}

void FakeMemory::close() {
  const std::lock_guard lock(mutex_);
  if (--open_ == 0) protect(PROT_NONE);
}

void FakeMemory::protect(int protection) { PP_ASSERT(mprotect(first_, size_, protection) == 0); }

}  // namespace pushpull::device

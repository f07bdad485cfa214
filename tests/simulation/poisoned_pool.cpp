// BufferPool, linked instead of common/base/buffer_pool.cpp. It fills free buffers with NaNs: a
// reader of returned or unwritten memory reads NaNs.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "common/base/buffer_pool.h"
#include "tests/device/fake_memory.h"

namespace pushpull {

namespace {

constexpr size_t kAlignment = 64;

void poison(float* floats, size_t count) {
  if (device::FakeMemory::spoil(floats, count * sizeof(float))) return;
  std::fill_n(floats, count, std::numeric_limits<float>::quiet_NaN());
}

}  // namespace

std::shared_ptr<float[]> heap_floats(size_t floats) {
  const size_t bytes = (floats * sizeof(float) / kAlignment + 1) * kAlignment;
  auto* memory = static_cast<float*>(std::aligned_alloc(kAlignment, bytes));
  if (memory == nullptr) throw std::bad_alloc();
  poison(memory, floats);
  return {memory, [](float* floats_) { std::free(floats_); }};
}

// Guarded by `mutex`.
struct BufferPool::State {
  std::mutex mutex;
  std::vector<std::shared_ptr<float[]>> idle;
};

BufferPool::BufferPool(size_t floats, FloatAllocator allocate)
    : floats_(floats), allocate_(std::move(allocate)), state_(std::make_shared<State>()) {}

std::shared_ptr<float[]> BufferPool::get() {
  std::shared_ptr<float[]> buffer;
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->idle.empty()) {
      buffer = std::move(state_->idle.back());
      state_->idle.pop_back();
    }
  }
  if (!buffer) buffer = allocate_(floats_);
  float* floats = buffer.get();
  return {floats, [state = state_, count = floats_, owner = std::move(buffer)](float*) mutable {
            poison(owner.get(), count);
            const std::lock_guard lock(state->mutex);
            state->idle.push_back(std::move(owner));
          }};
}

void BufferPool::reserve(int count) {
  std::vector<std::shared_ptr<float[]>> buffers;
  for (int i = 0; i < count; ++i) buffers.push_back(get());
}

}  // namespace pushpull

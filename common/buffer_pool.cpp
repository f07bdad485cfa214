#include "common/buffer_pool.h"

#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

namespace pushpull {

namespace {

constexpr size_t kAlignment = 64;

float* allocate(size_t floats) {
  const size_t bytes = (floats * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, bytes == 0 ? kAlignment : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return static_cast<float*>(memory);
}

}  // namespace

// Guarded by `mutex`.
struct BufferPool::State {
  std::mutex mutex;
  std::vector<float*> idle;

  ~State() {
    for (float* buffer : idle) std::free(buffer);
  }
};

BufferPool::BufferPool(size_t floats) : floats_(floats), state_(std::make_shared<State>()) {}

std::shared_ptr<float[]> BufferPool::get() {
  float* buffer = nullptr;
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->idle.empty()) {
      buffer = state_->idle.back();
      state_->idle.pop_back();
    }
  }
  if (buffer == nullptr) buffer = allocate(floats_);
  return {buffer, [state = state_](float* returned) {
            const std::lock_guard lock(state->mutex);
            state->idle.push_back(returned);
          }};
}

}  // namespace pushpull

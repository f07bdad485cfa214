#include "common/shm/segment_pool.h"

#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "common/buffer_pool.h"
#include "common/error.h"

namespace pushpull {

// Guarded by `mutex`.
struct SegmentPool::State {
  std::mutex mutex;
  std::map<const std::byte*, std::weak_ptr<const Segment>, std::less<>> by_start;
  std::function<void(const std::string&)> failed;  // empty once it has been called
};

SegmentPool::SegmentPool(std::function<void(const std::string&)> failed)
    : state_(std::make_shared<State>()) {
  state_->failed = std::move(failed);
}

std::shared_ptr<float[]> SegmentPool::get(size_t floats) {
  std::shared_ptr<const Segment> segment;
  try {
    segment = std::make_shared<const Segment>(floats * sizeof(float));
  } catch (const Error& e) {
    std::function<void(const std::string&)> failed;
    {
      const std::lock_guard lock(state_->mutex);
      failed = std::exchange(state_->failed, nullptr);
    }
    if (failed) failed(e.what());
    return heap_floats(floats);
  }
  const std::byte* start = segment->data();
  {
    const std::lock_guard lock(state_->mutex);
    state_->by_start[start] = segment;
  }
  return {reinterpret_cast<float*>(segment->data()),
          [state = state_, segment](float* returned) mutable {
            const std::lock_guard lock(state->mutex);
            state->by_start.erase(reinterpret_cast<const std::byte*>(returned));
            segment.reset();  // not before: another one could begin there at once
          }};
}

SegmentPool::Place SegmentPool::find(std::span<const std::byte> bytes) const {
  const std::lock_guard lock(state_->mutex);
  auto after = state_->by_start.upper_bound(bytes.data());
  if (after == state_->by_start.begin()) return {};
  const auto& [start, held] = *--after;
  std::shared_ptr<const Segment> segment = held.lock();
  if (!segment) return {};
  const std::byte* end = start + segment->bytes();
  if (!std::less_equal<>()(bytes.data() + bytes.size(), end)) return {};
  return {std::move(segment), bytes.data() - start};
}

}  // namespace pushpull

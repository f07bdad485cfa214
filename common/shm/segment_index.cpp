#include "common/shm/segment_index.h"

#include <functional>
#include <map>
#include <mutex>
#include <utility>

namespace pushpull {

// Guarded by `mutex`.
struct SegmentIndex::State {
  std::mutex mutex;
  std::map<const std::byte*, std::weak_ptr<const SharedMemory>, std::less<>> by_start;
};

SegmentIndex::SegmentIndex() : state_(std::make_shared<State>()) {}

std::shared_ptr<float[]> SegmentIndex::add(std::shared_ptr<const SharedMemory> segment) {
  auto* first = reinterpret_cast<float*>(segment->data());
  {
    const std::lock_guard lock(state_->mutex);
    state_->by_start[segment->data()] = segment;
  }
  return {first, [state = state_, held = std::move(segment)](float* returned) mutable {
            const std::lock_guard lock(state->mutex);
            state->by_start.erase(reinterpret_cast<const std::byte*>(returned));
            held.reset();  // not earlier: a new segment could get the same address at once
          }};
}

SegmentIndex::Place SegmentIndex::find(std::span<const std::byte> bytes) const {
  const std::lock_guard lock(state_->mutex);
  auto after = state_->by_start.upper_bound(bytes.data());
  if (after == state_->by_start.begin()) return {};
  const auto& [start, held] = *--after;
  std::shared_ptr<const SharedMemory> segment = held.lock();
  if (!segment) return {};
  const std::byte* end = start + segment->bytes();
  if (!std::less_equal<>()(bytes.data() + bytes.size(), end)) return {};
  return {std::move(segment), bytes.data() - start};
}

}  // namespace pushpull

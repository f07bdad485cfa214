#include "common/shm/segment_pool.h"

#include <utility>

#include "common/base/buffer_pool.h"
#include "common/base/error.h"

namespace pushpull {

SegmentPool::SegmentPool(std::function<void(const std::string&)> failed)
    : failed_(std::move(failed)) {}

std::shared_ptr<float[]> SegmentPool::get(size_t floats) {
  try {
    return index_.add(std::make_shared<const Segment>(floats * sizeof(float)));
  } catch (const Error& e) {
    std::call_once(reported_, failed_, e.what());
    return heap_floats(floats);
  }
}

}  // namespace pushpull

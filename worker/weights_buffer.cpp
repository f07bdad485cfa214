#include "worker/weights_buffer.h"

#include <algorithm>
#include <cstring>

#include "common/error.h"

namespace pushpull {

WeightsBuffer::WeightsBuffer(const SliceMap& map)
    : map_(map),
      current_(static_cast<size_t>(map.total())),
      coming_(static_cast<size_t>(map.total())),
      version_(static_cast<size_t>(map.slices()), kNone) {}

void WeightsBuffer::expect() { std::fill(version_.begin(), version_.end(), kNone); }

bool WeightsBuffer::fits(int slice, const Payload& payload) const {
  return payload.float_count() == static_cast<size_t>(map_.elements(slice).size());
}

void WeightsBuffer::place(int slice, int64_t version, const Payload& payload) {
  PP_ASSERT(fits(slice, payload));
  const Range elements = map_.elements(slice);
  std::memcpy(coming_.data() + elements.lo, payload.bytes.data(), payload.bytes.size());
  version_[static_cast<size_t>(slice)] = version;
}

bool WeightsBuffer::has(Range elements) const {
  if (elements.lo >= elements.hi) return true;
  const int64_t slice_size = map_.elements(0).size();
  const auto first = version_.begin() + elements.lo / slice_size;
  const auto last = version_.begin() + (elements.hi - 1) / slice_size;
  return std::find(first, last + 1, kNone) == last + 1;
}

int64_t WeightsBuffer::least_version() const {
  return *std::min_element(version_.begin(), version_.end());
}

int64_t WeightsBuffer::most_version() const {
  return *std::max_element(version_.begin(), version_.end());
}

}  // namespace pushpull

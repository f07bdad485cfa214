#include "worker/weights_buffer.h"

#include <algorithm>
#include <cstring>

#include "common/block_codec.h"
#include "common/error.h"

namespace pushpull {

WeightsBuffer::WeightsBuffer(const SliceMap& map, bool narrow)
    : map_(map),
      narrow_(narrow),
      current_(static_cast<size_t>(map.total())),
      coming_(static_cast<size_t>(map.total())),
      whole_(narrow ? coming_.size() : 0),
      version_(static_cast<size_t>(map.slices()), kNone) {}

void WeightsBuffer::expect() { std::fill(version_.begin(), version_.end(), kNone); }

// One float is no narrower.
bool WeightsBuffer::is_narrow(int slice, const Payload& payload) const {
  const auto elements = static_cast<size_t>(map_.elements(slice).size());
  return narrow_ && elements > 1 && payload.float_count() == (elements + 1) / 2;
}

bool WeightsBuffer::fits(int slice, const Payload& payload) const {
  return is_narrow(slice, payload) ||
         payload.float_count() == static_cast<size_t>(map_.elements(slice).size());
}

void WeightsBuffer::place(int slice, int64_t version, const Payload& payload) {
  PP_ASSERT(fits(slice, payload));
  const Range elements = map_.elements(slice);
  float* to = coming_.data() + elements.lo;
  if (is_narrow(slice, payload)) {
    from_bf16(reinterpret_cast<const uint16_t*>(payload.bytes.data()), elements.size(), to);
  } else if (narrow_) {
    std::memcpy(whole_.data() + elements.lo, payload.bytes.data(), payload.bytes.size());
    round_to_bf16(payload.floats(), elements.size(), to);
  } else {
    std::memcpy(to, payload.bytes.data(), payload.bytes.size());
  }
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

#include "worker/weights_buffer.h"

#include <algorithm>
#include <cstring>

#include "common/error.h"

namespace pushpull {

WeightsBuffer::WeightsBuffer(const SliceMap& map)
    : map_(map), version_(static_cast<size_t>(map.slices()), kNone) {}

void WeightsBuffer::expect() {
  std::fill(version_.begin(), version_.end(), kNone);
  here_ = 0;
}

bool WeightsBuffer::fits(int slice, const Payload& payload) const {
  return payload.float_count() == static_cast<size_t>(map_.elements(slice).size());
}

bool WeightsBuffer::place(int slice, int64_t version, const Payload& payload, bool in_place) {
  PP_ASSERT(fits(slice, payload));
  const int64_t offset = map_.elements(slice).lo;
  const float* base = payload.floats() - offset;
  if (here_ == 0) {
    coming_.in_place = in_place ? base : nullptr;
    coming_.owner = in_place ? payload.owner : nullptr;
  }
  if (coming_.in_place == nullptr) {
    coming_.own.resize(static_cast<size_t>(map_.total()));
    std::memcpy(coming_.own.data() + offset, payload.bytes.data(), payload.bytes.size());
  } else if (!in_place || base != coming_.in_place || payload.owner != coming_.owner) {
    return false;
  }
  int64_t& known = version_[static_cast<size_t>(slice)];
  if (known == kNone) ++here_;
  known = version;
  return true;
}

void WeightsBuffer::forget(int slice) {
  int64_t& known = version_[static_cast<size_t>(slice)];
  if (known != kNone) --here_;
  known = kNone;
}

std::span<const float> WeightsBuffer::flat(const Flat& weights) const {
  const float* first = weights.in_place != nullptr ? weights.in_place : weights.own.data();
  return {first, static_cast<size_t>(map_.total())};
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

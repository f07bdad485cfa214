#include "worker/weights_buffer.h"

#include <algorithm>
#include <cstring>

#include "common/block_codec.h"
#include "common/error.h"

namespace pushpull {

WeightsBuffer::WeightsBuffer(const SliceMap& map, bool narrow, FloatAllocator memory)
    : map_(map),
      narrow_(narrow),
      memory_(std::move(memory)),
      version_(static_cast<size_t>(map.slices()), kNone) {}

void WeightsBuffer::expect() {
  std::fill(version_.begin(), version_.end(), kNone);
  here_ = 0;
}

// One float is no narrower.
bool WeightsBuffer::is_narrow(int slice, const Payload& payload) const {
  const auto elements = static_cast<size_t>(map_.elements(slice).size());
  return narrow_ && elements > 1 && payload.float_count() == (elements + 1) / 2;
}

bool WeightsBuffer::fits(int slice, const Payload& payload) const {
  return is_narrow(slice, payload) ||
         payload.float_count() == static_cast<size_t>(map_.elements(slice).size());
}

bool WeightsBuffer::place(int slice, int64_t version, const Payload& payload, bool in_place) {
  PP_ASSERT(fits(slice, payload));
  const int64_t offset = map_.elements(slice).lo;
  const float* base = payload.address() - offset;
  if (here_ == 0) {
    coming_.in_place = in_place ? base : nullptr;
    coming_.owner = in_place ? payload.owner : nullptr;
  }
  if (coming_.in_place == nullptr) {
    if (payload.on_device) return false;  // the host cannot copy it
    if (!coming_.own) coming_.own = memory_(static_cast<size_t>(map_.total()));
    copy(slice, payload);
  } else if (!in_place || base != coming_.in_place || payload.owner != coming_.owner) {
    return false;
  }
  int64_t& known = version_[static_cast<size_t>(slice)];
  if (known == kNone) ++here_;
  known = version;
  return true;
}

void WeightsBuffer::copy(int slice, const Payload& payload) {
  const Range elements = map_.elements(slice);
  float* to = coming_.own.get() + elements.lo;
  if (is_narrow(slice, payload)) {
    from_bf16(reinterpret_cast<const uint16_t*>(payload.bytes.data()), elements.size(), to);
  } else if (narrow_) {
    coming_.whole.resize(static_cast<size_t>(map_.total()));
    std::memcpy(coming_.whole.data() + elements.lo, payload.bytes.data(), payload.bytes.size());
    round_to_bf16(payload.floats(), elements.size(), to);
  } else {
    std::memcpy(to, payload.bytes.data(), payload.bytes.size());
  }
}

void WeightsBuffer::forget(int slice) {
  int64_t& known = version_[static_cast<size_t>(slice)];
  if (known != kNone) --here_;
  known = kNone;
}

std::span<const float> WeightsBuffer::flat(const Flat& weights) const {
  const float* first = weights.in_place != nullptr ? weights.in_place : weights.own.get();
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

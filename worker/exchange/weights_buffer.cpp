#include "worker/exchange/weights_buffer.h"

#include <algorithm>
#include <cstring>

#include "common/base/error.h"
#include "common/codec/block_codec.h"

namespace pushpull {

namespace {

size_t bytes_of(int64_t elements) { return static_cast<size_t>(elements) * sizeof(float); }

// Slices of several servers can be mapped into one flat vector.
bool can_map(const SliceMap& map) {
  const size_t slice_bytes = bytes_of(map.elements(0).size());
  const bool pages_fit = PageView::possible(bytes_of(map.total()), slice_bytes);
  return map.servers() > 1 && pages_fit;
}

}  // namespace

WeightsBuffer::WeightsBuffer(const SliceMap& map, bool encoded, FloatAllocator memory,
                             bool side_by_side)
    : map_(map),
      encoded_(encoded),
      memory_(std::move(memory)),
      side_by_side_(side_by_side && can_map(map)),
      version_(static_cast<size_t>(map.slices()), kNone) {}

void WeightsBuffer::expect() {
  std::fill(version_.begin(), version_.end(), kNone);
  here_ = 0;
}

// One float takes the same room either way.
bool WeightsBuffer::is_encoded(int slice, const Payload& payload) const {
  const auto elements = static_cast<size_t>(map_.elements(slice).size());
  return encoded_ && elements > 1 && payload.float_count() == (elements + 1) / 2;
}

bool WeightsBuffer::fits(int slice, const Payload& payload) const {
  return is_encoded(slice, payload) ||
         payload.float_count() == static_cast<size_t>(map_.elements(slice).size());
}

bool WeightsBuffer::place(int slice, int64_t version, const Payload& payload, bool in_place) {
  PP_ASSERT(fits(slice, payload));
  const float* base = payload.address() - map_.elements(slice).lo;
  if (here_ == 0) begin(base, payload, in_place);
  if (coming_.lies == Lies::kInPlace) {
    const bool there = in_place && base == coming_.in_place && payload.owner == coming_.owner;
    if (!there) return false;
  } else {
    if (payload.on_device) return false;  // the host cannot copy it
    put(slice, payload, in_place);
  }
  int64_t& known = version_[static_cast<size_t>(slice)];
  if (known == kNone) ++here_;
  known = version;
  return true;
}

void WeightsBuffer::begin(const float* base, const Payload& payload, bool in_place) {
  coming_.lies = Lies::kOwn;
  if (in_place && map_.servers() == 1) coming_.lies = Lies::kInPlace;
  if (in_place && side_by_side_) coming_.lies = Lies::kInView;
  const bool there = coming_.lies == Lies::kInPlace;
  coming_.in_place = there ? base : nullptr;
  coming_.owner = there ? payload.owner : nullptr;
}

void WeightsBuffer::put(int slice, const Payload& payload, bool in_place) {
  if (coming_.lies == Lies::kOwn) {
    if (!coming_.own) coming_.own = memory_(static_cast<size_t>(map_.total()));
    return copy(slice, payload, coming_.own.get() + map_.elements(slice).lo);
  }
  if (!coming_.view) {
    coming_.view =
        std::make_unique<PageView>(bytes_of(map_.total()), bytes_of(map_.elements(0).size()));
  }
  const auto piece = static_cast<size_t>(slice);
  if (in_place && coming_.view->show(piece, payload.owner, payload.bytes)) return;
  copy(slice, payload, coming_.view->own(piece));
}

void WeightsBuffer::copy(int slice, const Payload& payload, float* to) {
  const Range elements = map_.elements(slice);
  if (is_encoded(slice, payload)) {
    from_bf16(reinterpret_cast<const uint16_t*>(payload.bytes.data()), elements.size(), to);
  } else if (encoded_) {
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
  const float* first = weights.in_place;
  if (weights.lies == Lies::kOwn) first = weights.own.get();
  if (weights.lies == Lies::kInView) first = weights.view ? weights.view->floats() : nullptr;
  return {first, static_cast<size_t>(map_.total())};
}

bool WeightsBuffer::lies_there(const Flat& weights) {
  return weights.lies == Lies::kInPlace ||
         (weights.lies == Lies::kInView && weights.view && weights.view->shown() > 0);
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

#include "worker/exchange/weights_buffer.h"

#include <algorithm>
#include <cstring>

#include "common/base/error.h"
#include "common/base/sparse_floats.h"
#include "common/update/block_codec.h"

namespace pushpull {

namespace {

constexpr int kMaxMissing = 4096;  // slices named in one repeated pull

size_t bytes_of(int64_t elements) { return static_cast<size_t>(elements) * sizeof(float); }

// Returns true if slices of several servers can be mapped into one flat vector.
bool can_map(const SliceMap& map) {
  const size_t slice_bytes = bytes_of(map.slice_elements());
  const bool pages_fit = PageView::possible(bytes_of(map.total()), slice_bytes);
  return map.servers() > 1 && map.stages() == 1 && pages_fit;
}

}  // namespace

WeightsBuffer::WeightsBuffer(const SliceMap& map, bool encoded, FloatAllocator memory,
                             bool anywhere, const std::vector<Range>& pulled)
    : map_(map),
      encoded_(encoded),
      memory_(std::move(memory)),
      maps_(anywhere && can_map(map)),
      keeps_(anywhere && !encoded && map.slices() == 1),
      pulled_(pulled.empty() ? std::vector<Range>{{0, map.slices()}} : pulled),
      version_(static_cast<size_t>(map.slices()), kNone) {}

void WeightsBuffer::expect() {
  std::fill(version_.begin(), version_.end(), kNone);
  here_ = 0;
}

// A slice of one float has the same length encoded and plain; it is sent plain.
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
  if (arriving_.location == Location::kInPlace) {
    const bool there = in_place && base == arriving_.in_place && payload.owner == arriving_.owner;
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
  arriving_.location = keeps_ && !in_place ? Location::kReceived : Location::kOwn;
  if (in_place && map_.servers() == 1) arriving_.location = Location::kInPlace;
  if (in_place && maps_) arriving_.location = Location::kInView;
  const bool there = arriving_.location == Location::kInPlace;
  arriving_.in_place = there ? base : nullptr;
  arriving_.owner = there ? payload.owner : nullptr;
}

void WeightsBuffer::put(int slice, const Payload& payload, bool in_place) {
  if (arriving_.location == Location::kReceived) {
    arriving_.in_place = payload.floats();
    arriving_.owner = payload.owner;
    return;
  }
  if (arriving_.location == Location::kOwn) {
    if (!arriving_.own) arriving_.own = memory_(static_cast<size_t>(map_.total()));
    return copy(slice, payload, arriving_.own.get() + map_.elements(slice).lo);
  }
  if (!arriving_.view) {
    arriving_.view =
        std::make_unique<PageView>(bytes_of(map_.total()), bytes_of(map_.slice_elements()));
  }
  const auto piece = static_cast<size_t>(slice);
  if (in_place && arriving_.view->show(piece, payload.owner, payload.bytes)) return;
  copy(slice, payload, arriving_.view->own(piece));
}

void WeightsBuffer::copy(int slice, const Payload& payload, float* to) {
  const Range elements = map_.elements(slice);
  if (is_encoded(slice, payload)) {
    from_bf16(reinterpret_cast<const uint16_t*>(payload.bytes.data()), elements.size(), to);
  } else if (encoded_) {
    if (!arriving_.whole) arriving_.whole = sparse_floats(static_cast<size_t>(map_.total()));
    std::memcpy(arriving_.whole.get() + elements.lo, payload.bytes.data(), payload.bytes.size());
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
  const float* first = weights.in_place;  // kInPlace, kReceived
  if (weights.location == Location::kOwn) first = weights.own.get();
  if (weights.location == Location::kInView)
    first = weights.view ? weights.view->floats() : nullptr;
  return {first, static_cast<size_t>(map_.total())};
}

bool WeightsBuffer::is_shared(const Flat& weights) {
  return weights.location == Location::kInPlace ||
         (weights.location == Location::kInView && weights.view && weights.view->shown() > 0);
}

bool WeightsBuffer::has(Range elements) const {
  if (elements.lo >= elements.hi) return true;
  const Range slices = map_.slices_with(elements);
  const auto last = version_.begin() + slices.hi;
  return std::find(version_.begin() + slices.lo, last, kNone) == last;
}

int64_t WeightsBuffer::min_version() const {
  int64_t min = INT64_MAX;
  for (const Range& slices : pulled_) {
    min = std::min(min,
                   *std::min_element(version_.begin() + slices.lo, version_.begin() + slices.hi));
  }
  return min;
}

int64_t WeightsBuffer::max_version() const {
  return *std::max_element(version_.begin(), version_.end());
}

// ---- PullState ----

PullState::PullState(const ConnectionMap& connections, WeightsBuffer& weights)
    : connections_(connections),
      weights_(weights),
      servers_(static_cast<size_t>(connections.servers())) {}

void PullState::begin(const PullAim& aim) {
  aim_ = aim;
  weights_.expect();
  for (int server = 0; server < connections_.servers(); ++server) {
    servers_[static_cast<size_t>(server)] = {static_cast<int>(connections_.pulled(server).size()),
                                             -1, aim.at_barrier};
  }
}

PullState::Taken PullState::take(int server, const wire::Weights& weights,
                                 const std::vector<Payload>& payloads, bool in_place) {
  Server& from = servers_[static_cast<size_t>(server)];
  Taken taken = kNone;
  for (int i = 0; i < weights.slices_size(); ++i) {
    const wire::SliceVersion& entry = weights.slices(i);
    const Payload& payload = payloads[static_cast<size_t>(i)];
    if (!is_needed(server, entry, payload)) continue;
    if (!weights_.place(entry.slice(), entry.version(), payload, in_place)) return kNotContiguous;
    taken = kSome;
    from.at_barrier = from.at_barrier && weights.at_barrier();
    --from.missing;
  }
  return taken;
}

bool PullState::is_needed(int server, const wire::SliceVersion& entry, const Payload& payload) {
  const SliceMap& map = connections_.map();
  if (entry.slice() < 0 || entry.slice() >= map.slices()) return false;
  if (map.server_of(entry.slice()) != server || entry.version() < 0) return false;
  if (!weights_.fits(entry.slice(), payload)) return false;
  if (aim_.versions == PullAim::kPerServer && !is_one_version(server, entry.version())) {
    return false;
  }
  if (weights_.has(entry.slice())) return false;
  return aim_.versions != PullAim::kExact || entry.version() == aim_.clock;
}

// A push names one version for each server, so all slices of a server must have the same one. If
// the answer to a repeated pull has a newer version, the slices of the older answer are dropped.
bool PullState::is_one_version(int server, int64_t version) {
  Server& from = servers_[static_cast<size_t>(server)];
  if (version == from.version) return true;
  // the server's slices are complete, or a newer answer has overtaken this one
  if (from.missing == 0 || version < from.version) return false;
  const std::vector<int>& slices = connections_.pulled(server);
  for (const int slice : slices) weights_.forget(slice);
  from = {static_cast<int>(slices.size()), version, aim_.at_barrier};
  return true;
}

void PullState::put_missing(int server, int connection, wire::Pull* pull) const {
  pull->clear_missing();
  for (const int slice : connections_.pulled(server)) {
    if (connections_.of_slice(slice) != connection || weights_.has(slice)) continue;
    if (pull->missing_size() == kMaxMissing) break;
    pull->add_missing(slice);
  }
}

bool PullState::at_barrier() const {
  if (!aim_.at_barrier) return false;
  for (int server = 0; server < connections_.servers(); ++server) {
    if (!connections_.pulled(server).empty() && !at(server).at_barrier) return false;
  }
  return true;
}

}  // namespace pushpull

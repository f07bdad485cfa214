#include "ps/shard.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/error.h"

namespace pushpull {

namespace {

size_t elements_of(const SliceMap& map, const std::vector<int>& slices) {
  int64_t sum = 0;
  for (const int slice : slices) sum += map.elements(slice).size();
  return static_cast<size_t>(sum);
}

}  // namespace

Shard::Shard(const SliceMap& map, int server, const TensorTable& table,
             const OptimizerOptions& optimizer, FloatAllocator memory, const CodecMap& codecs)
    : map_(map),
      server_(server),
      optimizer_(optimizer),
      slices_(map.slices_of(server)),
      pool_(elements_of(map, slices_), std::move(memory)),
      current_(pool_.get()) {
  int64_t offset = 0;
  for (const int slice : slices_) {
    SliceData d{.elements = map_.elements(slice),
                .blocks = map_.blocks(slice),
                .update = RangeUpdate(table, map_.elements(slice), optimizer_),
                .codec = codecs.of_slice(map_, slice),
                .offset = offset,
                .state = {}};
    d.state.assign(state_vectors(), std::vector<float>(static_cast<size_t>(d.elements.size())));
    offset += d.elements.size();
    data_.push_back(std::move(d));
  }
}

bool Shard::owns(int slice) const {
  return slice >= 0 && slice < map_.slices() && map_.server_of(slice) == server_;
}

int64_t Shard::elements(int slice) const { return data(slice).elements.size(); }

size_t Shard::state_vectors() const { return state_names(optimizer_.kind).size(); }

const Shard::SliceData& Shard::data(int slice) const {
  PP_ASSERT(owns(slice));
  return data_[static_cast<size_t>(slice / map_.servers())];
}

Shard::SliceData& Shard::data(int slice) {
  PP_ASSERT(owns(slice));
  return data_[static_cast<size_t>(slice / map_.servers())];
}

std::vector<TreePart> Shard::tree_parts(const SliceData& d, const std::vector<PartialSum>& parts) {
  std::vector<TreePart> out;
  out.reserve(parts.size());
  for (const PartialSum& part : parts) {
    out.push_back({part.range, part.payload.floats(), d.codec.plain() ? nullptr : &d.codec});
  }
  return out;
}

void Shard::initialise(uint64_t seed) {
  for (SliceData& d : data_) d.update.initialise(seed, current_.get() + d.offset);
}

namespace {

void copy(const Payload& from, Range elements, float* to) {
  PP_ASSERT(from.bytes.size() == static_cast<size_t>(elements.size()) * sizeof(float));
  std::memcpy(to, from.bytes.data(), from.bytes.size());
}

}  // namespace

void Shard::load_state(SliceData& d, std::span<const Payload> payloads) {
  PP_ASSERT(payloads.size() <= d.state.size());
  for (size_t i = 0; i < payloads.size(); ++i) copy(payloads[i], d.elements, d.state[i].data());
}

void Shard::load(int slice, std::span<const Payload> payloads) {
  SliceData& d = data(slice);
  PP_ASSERT(!payloads.empty() && !next_ && !previous_);
  copy(payloads[0], d.elements, current_.get() + d.offset);
  load_state(d, payloads.subspan(1));
}

void Shard::store(int slice, std::span<const Payload> payloads, int64_t version, int64_t updates) {
  SliceData& d = data(slice);
  PP_ASSERT(!payloads.empty());
  copy(payloads[0], d.elements, begin_next(d));
  load_state(d, payloads.subspan(1));
  end_next(d, version, updates);
}

float* Shard::begin_next(const SliceData& d) {
  PP_ASSERT(!d.ahead);
  if (!next_) {
    // the generation before goes back to the pool first, so that its pages are used again
    previous_.reset();
    next_ = pool_.get();
  }
  return next_.get() + d.offset;
}

void Shard::end_next(SliceData& d, int64_t version, int64_t updates) {
  d.previous_version = std::exchange(d.version, version);
  d.updates = updates;
  d.ahead = true;
  if (++ahead_ < data_.size()) return;
  for (SliceData& other : data_) other.ahead = false;
  ahead_ = 0;
  previous_ = std::exchange(current_, std::move(next_));
  next_.reset();
}

void Shard::set_start(int64_t version, int64_t updates) {
  for (SliceData& d : data_) {
    d.version = version;
    d.updates = updates;
  }
}

void Shard::apply(int slice, const std::vector<PartialSum>& parts, int64_t leaves,
                  const UpdateInfo& info, int64_t versions, const float* read) {
  SliceData& d = data(slice);
  TreeSum sum(tree_parts(d, parts), leaves);
  const float* before = current_.get() + d.offset;
  float* next = begin_next(d);
  std::array<float*, 2> state{};
  for (size_t s = 0; s < d.state.size(); ++s) state[s] = d.state[s].data();
  for (int64_t lo = 0; lo < d.elements.size(); lo += TreeSum::kStride) {
    const Range stride{lo, std::min(lo + TreeSum::kStride, d.elements.size())};
    d.update.apply(stride, info, d.updates + 1, before, sum.block(stride.lo, stride.size()),
                   std::span(state.data(), d.state.size()), next, read);
  }
  end_next(d, d.version + versions, d.updates + 1);
}

std::vector<NormPart> Shard::norms(int slice, const std::vector<PartialSum>& parts, int64_t leaves,
                                   double divisor) {
  const SliceData& d = data(slice);
  TreeSum sum(tree_parts(d, parts), leaves);
  std::vector<double> squares;
  for (int64_t lo = 0; lo < d.elements.size(); lo += kBlockElements) {
    const Range block{lo, std::min(lo + kBlockElements, d.elements.size())};
    squares.push_back(d.update.squares(block, sum.block(block.lo, block.size()), divisor));
  }
  return norm_parts(squares, d.blocks.lo, map_.blocks());
}

Payload Shard::payload(const std::shared_ptr<float[]>& generation, const SliceData& d) const {
  if (!generation) return {};
  const std::span<const float> floats(generation.get() + d.offset,
                                      static_cast<size_t>(d.elements.size()));
  return {generation, std::as_bytes(floats)};
}

Payload Shard::weights(int slice) const {
  const SliceData& d = data(slice);
  return payload(d.ahead ? next_ : current_, d);
}

Payload Shard::previous(int slice) const {
  const SliceData& d = data(slice);
  return payload(d.ahead ? current_ : previous_, d);
}

int64_t Shard::previous_version(int slice) const {
  const SliceData& d = data(slice);
  return d.ahead || previous_ ? d.previous_version : -1;
}

std::vector<Payload> Shard::copy_state(int slice) const {
  std::vector<Payload> out;
  for (const std::vector<float>& state : data(slice).state) {
    auto copy = std::make_shared<std::vector<float>>(state);
    const auto bytes = std::as_bytes(std::span<const float>(*copy));
    out.push_back({std::move(copy), bytes});
  }
  return out;
}

}  // namespace pushpull

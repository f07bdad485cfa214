#include "ps/shard.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/error.h"

namespace pushpull {

namespace {

int64_t largest_slice(const SliceMap& map) {
  return map.slices() == 0 ? 0 : map.elements(0).size();
}

}  // namespace

Shard::Shard(const SliceMap& map, int server, const TensorTable& table,
             const OptimizerOptions& optimizer, const CodecMap& codecs)
    : map_(map),
      server_(server),
      optimizer_(optimizer),
      slices_(map.slices_of(server)),
      pool_(static_cast<size_t>(largest_slice(map))) {
  for (const int slice : slices_) {
    SliceData d{.elements = map_.elements(slice),
                .blocks = map_.blocks(slice),
                .update = RangeUpdate(table, map_.elements(slice), optimizer_),
                .codec = codecs.of_slice(map_, slice),
                .current = pool_.get(),
                .previous = nullptr,
                .state = {}};
    d.state.assign(state_vectors(), std::vector<float>(static_cast<size_t>(d.elements.size())));
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
  for (SliceData& d : data_) d.update.initialise(seed, d.current.get());
}

void Shard::load(int slice, std::span<const Payload> payloads) {
  SliceData& d = data(slice);
  const auto bytes = static_cast<size_t>(d.elements.size()) * sizeof(float);
  PP_ASSERT(!payloads.empty() && payloads.size() <= 1 + d.state.size());
  for (const Payload& p : payloads) PP_ASSERT(p.bytes.size() == bytes);
  d.current = pool_.get();
  std::memcpy(d.current.get(), payloads[0].bytes.data(), bytes);
  for (size_t i = 1; i < payloads.size(); ++i) {
    std::memcpy(d.state[i - 1].data(), payloads[i].bytes.data(), bytes);
  }
}

void Shard::store(int slice, std::span<const Payload> payloads, int64_t version, int64_t updates) {
  load(slice, payloads);
  data(slice).version = version;
  data(slice).updates = updates;
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
  // the version before the previous one goes back to the pool first, so that its pages are used
  // again
  d.previous.reset();
  std::shared_ptr<float[]> next = pool_.get();
  std::array<float*, 2> state{};
  for (size_t s = 0; s < d.state.size(); ++s) state[s] = d.state[s].data();
  for (int64_t lo = 0; lo < d.elements.size(); lo += TreeSum::kStride) {
    const Range stride{lo, std::min(lo + TreeSum::kStride, d.elements.size())};
    d.update.apply(stride, info, d.updates + 1, d.current.get(),
                   sum.block(stride.lo, stride.size()), std::span(state.data(), d.state.size()),
                   next.get(), read);
  }
  d.previous = std::move(d.current);
  d.current = std::move(next);
  d.previous_version = d.version;
  d.version += versions;
  ++d.updates;
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

Payload Shard::payload(const std::shared_ptr<float[]>& buffer, int64_t elements) const {
  if (!buffer) return {};
  return {buffer, std::as_bytes(std::span(buffer.get(), static_cast<size_t>(elements)))};
}

Payload Shard::weights(int slice) const {
  const SliceData& d = data(slice);
  return payload(d.current, d.elements.size());
}

Payload Shard::previous(int slice) const {
  const SliceData& d = data(slice);
  return payload(d.previous, d.elements.size());
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

#include "ps/shard.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/error.h"
#include "common/random.h"
#include "ps/tree_sum.h"

namespace pushpull {

namespace {

int64_t largest_slice(const SliceMap& map) {
  return map.slices() == 0 ? 0 : map.elements(0).size();
}

}  // namespace

Shard::Shard(const SliceMap& map, int server, TensorTable table, const OptimizerOptions& optimizer)
    : map_(map),
      server_(server),
      table_(std::move(table)),
      optimizer_(optimizer),
      slices_(map.slices_of(server)),
      pool_(static_cast<size_t>(largest_slice(map))) {
  for (const int slice : slices_) {
    SliceData d;
    d.elements = map_.elements(slice);
    d.blocks = map_.blocks(slice);
    for (size_t t = 0; t < table_.tensors.size(); ++t) {
      const TensorInfo& tensor = table_.tensors[t];
      const int64_t lo = std::max(d.elements.lo, tensor.offset);
      const int64_t hi = std::min(d.elements.hi, tensor.offset + tensor.size);
      if (lo < hi) d.segments.push_back({{lo - d.elements.lo, hi - d.elements.lo}, t});
    }
    d.current = pool_.get();
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

void Shard::initialise(uint64_t seed) {
  for (SliceData& d : data_) {
    for (const Segment& segment : d.segments) {
      const TensorInfo& tensor = table_.tensors[segment.tensor];
      float* out = d.current.get() + segment.elements.lo;
      const auto count = static_cast<uint64_t>(segment.elements.size());
      if (tensor.init == InitKind::kConstant) {
        std::fill_n(out, count, tensor.value);
      } else {
        const int64_t first = d.elements.lo + segment.elements.lo - tensor.offset;
        fill_uniform(seed, RandomStream::kInit, static_cast<uint32_t>(segment.tensor),
                     static_cast<uint64_t>(first), tensor.value, count, out);
      }
    }
  }
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

void Shard::set_start(int64_t version, int64_t updates) {
  for (SliceData& d : data_) {
    d.version = version;
    d.updates = updates;
  }
}

void Shard::update_stride(SliceData& slice, Range stride, const float* sum, const UpdateInfo& info,
                          float* out) {
  for (const Segment& segment : slice.segments) {
    const int64_t lo = std::max(stride.lo, segment.elements.lo);
    const int64_t hi = std::min(stride.hi, segment.elements.hi);
    if (lo >= hi) continue;
    const TensorInfo& tensor = table_.tensors[segment.tensor];
    const auto n = static_cast<size_t>(hi - lo);
    const float* before = slice.current.get() + lo;
    const float* g = sum + (lo - stride.lo);
    if (tensor.rule == UpdateRule::kAverage) {
      average_range(tensor.average_momentum, info.share, info.divisor, n, before, g, out + lo);
      continue;
    }
    std::array<float*, 2> state{};
    for (size_t s = 0; s < slice.state.size(); ++s) state[s] = slice.state[s].data() + lo;
    const UpdateContext context{info.learning_rate * info.share, info.divisor, info.clip,
                                slice.updates + 1};
    update_range(optimizer_, context, n, before, g, std::span(state.data(), slice.state.size()),
                 out + lo);
  }
}

void Shard::apply(int slice, const std::vector<PartialSum>& parts, int64_t leaves,
                  const UpdateInfo& info) {
  SliceData& d = data(slice);
  TreeSum sum(parts, leaves);
  // the version before the previous one goes back to the pool first, so that its pages are used again
  d.previous.reset();
  std::shared_ptr<float[]> next = pool_.get();
  for (int64_t lo = 0; lo < d.elements.size(); lo += TreeSum::kStride) {
    const Range stride{lo, std::min(lo + TreeSum::kStride, d.elements.size())};
    update_stride(d, stride, sum.block(stride.lo, stride.size()), info, next.get());
  }
  d.previous = std::move(d.current);
  d.current = std::move(next);
  ++d.version;
  ++d.updates;
}

std::vector<NormPart> Shard::norms(int slice, const std::vector<PartialSum>& parts, int64_t leaves,
                                   double divisor) {
  const SliceData& d = data(slice);
  TreeSum sum(parts, leaves);
  std::vector<double> squares;
  std::array<float, kBlockElements> block{};
  for (int64_t lo = 0; lo < d.elements.size(); lo += kBlockElements) {
    const Range range{lo, std::min(lo + kBlockElements, d.elements.size())};
    const float* total = sum.block(range.lo, range.size());
    block.fill(0.0F);
    for (const Segment& segment : d.segments) {
      if (table_.tensors[segment.tensor].rule != UpdateRule::kOptimizer) continue;
      const int64_t first = std::max(range.lo, segment.elements.lo);
      const int64_t last = std::min(range.hi, segment.elements.hi);
      for (int64_t i = first; i < last; ++i) {
        block[static_cast<size_t>(i - lo)] = total[i - lo] / static_cast<float>(divisor);
      }
    }
    squares.push_back(block_squares(block.data(), range.size()));
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

#include "ps/shard.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "common/error.h"
#include "common/simd.h"

namespace pushpull {

namespace {

size_t elements_of(const SliceMap& map, const std::vector<int>& slices) {
  int64_t sum = 0;
  for (const int slice : slices) sum += map.elements(slice).size();
  return static_cast<size_t>(sum);
}

// Work on less is over before another thread has woken up.
constexpr int64_t kInlineElements = 64 * 1024;
constexpr int64_t kPieceElements = 64 * kBlockElements;
// The caches have long lost the first weights of a batch when its last ones are written.
constexpr int64_t kStreamElements = 2 * 1024 * 1024;

void copy(const Payload& from, Range elements, float* to) {
  PP_ASSERT(from.bytes.size() == static_cast<size_t>(elements.size()) * sizeof(float));
  std::memcpy(to, from.bytes.data(), from.bytes.size());
}

}  // namespace

Shard::Shard(const SliceMap& map, int server, const TensorTable& table,
             const OptimizerOptions& optimizer, FloatAllocator memory, const CodecMap& codecs)
    : map_(map),
      server_(server),
      optimizer_(optimizer),
      slices_(map.slices_of(server)),
      pool_(elements_of(map, slices_), std::move(memory)),
      current_(pool_.get()),
      state_pool_(pool_.floats()) {
  for (size_t s = 0; s < state_vectors(); ++s) {
    state_.push_back(state_pool_.get());
    std::fill_n(state_.back().get(), pool_.floats(), 0.0F);
  }
  int64_t offset = 0;
  for (const int slice : slices_) {
    SliceData d{.elements = map_.elements(slice),
                .blocks = map_.blocks(slice),
                .update = RangeUpdate(table, map_.elements(slice), optimizer_),
                .codec = codecs.of_slice(map_, slice),
                .offset = offset};
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

void Shard::initialise(uint64_t seed) {
  for (SliceData& d : data_) d.update.initialise(seed, current_.get() + d.offset);
}

void Shard::load_state(SliceData& d, std::span<const Payload> payloads) {
  begin_state(d);
  PP_ASSERT(payloads.size() <= state_.size());
  for (size_t i = 0; i < payloads.size(); ++i) {
    copy(payloads[i], d.elements, state_[i].get() + d.offset);
  }
  end_state(d);
}

void Shard::hold_state() {
  if (data_.empty() || state_vectors() == 0) return;
  if (held_ == data_.size()) return;  // nothing has changed since
  PP_ASSERT(held_ == 0);
  held_state_ = std::exchange(state_, {});
  held_ = data_.size();
  for (SliceData& d : data_) d.held = true;
}

void Shard::begin_state(const SliceData& d) {
  if (!d.held) return;
  while (state_.size() < state_vectors()) state_.push_back(state_pool_.get());
}

void Shard::end_state(SliceData& d) {
  if (!std::exchange(d.held, false)) return;
  if (--held_ == 0) held_state_.clear();
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

void Shard::cut(std::span<const SliceUpdate> updates) {
  pieces_.clear();
  for (size_t u = 0; u < updates.size(); ++u) {
    const int64_t size = elements(updates[u].slice);
    for (int64_t lo = 0; lo < size; lo += kPieceElements) {
      pieces_.push_back({u, {lo, std::min(lo + kPieceElements, size)}});
    }
  }
}

template <class Task>
void Shard::for_pieces(std::span<const SliceUpdate> updates, int64_t leaves, Parallel& parallel,
                       const Task& task) {
  cut(updates);
  int64_t work = 0;
  for (const Piece& piece : pieces_) work += piece.elements.size();
  Serial serial;
  Parallel& chosen = work < kInlineElements ? serial : parallel;
  if (sums_.size() < static_cast<size_t>(chosen.threads())) {
    sums_.resize(static_cast<size_t>(chosen.threads()));
  }
  chosen.run(std::ssize(pieces_), [&](int64_t index, int thread) {
    const Piece& piece = pieces_[static_cast<size_t>(index)];
    TreeSum& sum = sums_[static_cast<size_t>(thread)];
    const SliceCodec& of_slice = data(updates[piece.update].slice).codec;
    const SliceCodec* codec = of_slice.plain() ? nullptr : &of_slice;
    sum.begin();
    for (const PartialSum& part : updates[piece.update].parts) {
      sum.add({part.range, part.payload.floats(), codec});
    }
    sum.reset(leaves);
    task(piece, sum);
  });
}

void Shard::apply(std::span<const SliceUpdate> updates, int64_t leaves, const UpdateInfo& info,
                  int64_t versions, Parallel& parallel) {
  int64_t work = 0;
  for (const SliceUpdate& update : updates) {
    begin_next(data(update.slice));
    begin_state(data(update.slice));
    work += elements(update.slice);
  }
  UpdateInfo how = info;
  how.stream = work >= kStreamElements;
  for_pieces(updates, leaves, parallel, [&](const Piece& piece, TreeSum& sum) {
    apply_piece(piece, updates[piece.update], how, sum);
  });
  for (const SliceUpdate& update : updates) {
    SliceData& d = data(update.slice);
    end_state(d);
    end_next(d, d.version + versions, d.updates + 1);
  }
}

void Shard::apply_piece(const Piece& piece, const SliceUpdate& update, const UpdateInfo& info,
                        TreeSum& sum) {
  const SliceData& d = data(update.slice);
  std::array<float*, 2> state{};
  for (size_t s = 0; s < state_.size(); ++s) state[s] = state_[s].get() + d.offset;
  const Range elements = piece.elements;
  for (int64_t lo = elements.lo; lo < elements.hi; lo += TreeSum::kStride) {
    const Range stride{lo, std::min(lo + TreeSum::kStride, elements.hi)};
    if (d.held) {
      // just before it is read: it passes through the cache once
      for (size_t s = 0; s < state_.size(); ++s) {
        std::copy_n(held_state_[s].get() + d.offset + lo, stride.size(), state[s] + lo);
      }
    }
    d.update.apply(stride, info, d.updates + 1, current_.get() + d.offset,
                   sum.halves(stride.lo, stride.size()), std::span(state.data(), state_.size()),
                   next_.get() + d.offset, update.read);
  }
  if (info.stream) end_streams();
}

void Shard::apply(int slice, const std::vector<PartialSum>& parts, int64_t leaves,
                  const UpdateInfo& info, int64_t versions, const float* read) {
  Serial serial;
  const SliceUpdate update{slice, parts, read};
  apply(std::span(&update, 1), leaves, info, versions, serial);
}

std::vector<NormPart> Shard::norms(std::span<const SliceUpdate> slices, int64_t leaves,
                                   double divisor, Parallel& parallel) {
  // by block of the generation, where each slice but the last one is whole blocks
  squares_.resize((pool_.floats() + kBlockElements - 1) / kBlockElements);
  const auto block_of = [](const SliceData& d, int64_t element) {
    return static_cast<size_t>((d.offset + element) / kBlockElements);
  };
  for_pieces(slices, leaves, parallel, [&](const Piece& piece, TreeSum& sum) {
    const SliceData& d = data(slices[piece.update].slice);
    for (int64_t lo = piece.elements.lo; lo < piece.elements.hi; lo += kBlockElements) {
      const Range block{lo, std::min(lo + kBlockElements, piece.elements.hi)};
      squares_[block_of(d, lo)] = d.update.squares(block, sum.block(lo, block.size()), divisor);
    }
  });
  std::vector<NormPart> out;
  for (const SliceUpdate& of : slices) {
    const SliceData& d = data(of.slice);
    const auto squares =
        std::span(squares_).subspan(block_of(d, 0), static_cast<size_t>(d.blocks.size()));
    for (const NormPart& part : norm_parts(squares, d.blocks.lo, map_.blocks())) {
      out.push_back(part);
    }
  }
  return out;
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

std::vector<Payload> Shard::state(int slice) const {
  const SliceData& d = data(slice);
  std::vector<Payload> out;
  for (const auto& vector : d.held ? held_state_ : state_) out.push_back(payload(vector, d));
  return out;
}

}  // namespace pushpull

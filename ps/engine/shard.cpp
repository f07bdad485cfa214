#include "ps/engine/shard.h"

#include <utility>

#include "common/base/error.h"
#include "common/update/norm.h"

namespace pushpull {

namespace {

size_t elements_of(const SliceMap& map, const std::vector<int>& slices) {
  int64_t sum = 0;
  for (const int slice : slices) sum += map.elements(slice).size();
  return static_cast<size_t>(sum);
}

}  // namespace

Shard::Shard(const SliceMap& map, int server, const TensorTable& table,
             const OptimizerOptions& optimizer, std::shared_ptr<SliceEngine> engine,
             const CodecMap& codecs)
    : map_(map),
      server_(server),
      tensors_(table.tensors.size()),
      optimizer_(optimizer),
      engine_(std::move(engine)),
      slices_(map.slices_of(server)),
      pool_(elements_of(map, slices_), engine_->weights()),
      current_(pool_.get()),
      state_pool_(pool_.floats(), engine_->state()) {
  for (size_t s = 0; s < state_vectors(); ++s) state_.push_back(state_pool_.get());
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

size_t Shard::state_vectors() const { return state_names(optimizer_).size(); }

const Shard::SliceData& Shard::data(int slice) const {
  PP_ASSERT(owns(slice));
  return data_[place(slice)];
}

Shard::SliceData& Shard::data(int slice) {
  PP_ASSERT(owns(slice));
  return data_[place(slice)];
}

void Shard::initialise(uint64_t seed) {
  for (const SliceData& d : data_) {
    engine_->initialise(d.update, seed, current_.get() + d.offset);
  }
}

void Shard::write(const Payload& from, const SliceData& d, float* to) {
  PP_ASSERT(from.bytes.size() == static_cast<size_t>(d.elements.size()) * sizeof(float));
  engine_->write(from, to);
}

void Shard::load_state(SliceData& d, std::span<const Payload> payloads) {
  begin_state(d);
  PP_ASSERT(payloads.size() <= state_.size());
  for (size_t i = 0; i < payloads.size(); ++i) {
    write(payloads[i], d, state_[i].get() + d.offset);
  }
  end_state(d);
}

void Shard::hold_state() {
  if (data_.empty() || state_vectors() == 0) return;
  if (held_ == data_.size()) return;  // unchanged since the last call
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
  write(payloads[0], d, current_.get() + d.offset);
  load_state(d, payloads.subspan(1));
}

void Shard::store(int slice, std::span<const Payload> payloads, int64_t version, int64_t updates) {
  SliceData& d = data(slice);
  PP_ASSERT(!payloads.empty());
  write(payloads[0], d, begin_next(d));
  load_state(d, payloads.subspan(1));
  end_next(d, version, updates);
}

float* Shard::begin_next(const SliceData& d) {
  PP_ASSERT(!d.ahead);
  if (!next_) {
    // The previous generation returns to the pool first, so that its pages are reused.
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

SliceWork Shard::work_of(const SliceUpdate& update) const {
  const SliceData& d = data(update.slice);
  SliceWork work;
  work.rules = &d.update;
  work.codec = &d.codec;
  work.parts = update.parts;
  work.updates = d.updates + 1;
  return work;
}

void Shard::add_present(const SliceData& d, SliceWork& work) const {
  work.before = current_.get() + d.offset;
  const auto& state = d.held ? held_state_ : state_;
  for (size_t s = 0; s < state.size(); ++s) work.state_before[s] = state[s].get() + d.offset;
}

void Shard::apply(std::span<const SliceUpdate> updates, int64_t leaves, const UpdateInfo& info,
                  int64_t versions, Parallel& parallel) {
  work_.clear();
  for (const SliceUpdate& update : updates) {
    const SliceData& d = data(update.slice);
    SliceWork work = work_of(update);
    add_present(d, work);
    work.after = begin_next(d);
    begin_state(d);
    for (size_t s = 0; s < state_.size(); ++s) work.state[s] = state_[s].get() + d.offset;
    work.read = update.read;
    work_.push_back(work);
  }
  engine_->apply(work_, leaves, info, parallel);
  for (const SliceUpdate& update : updates) {
    SliceData& d = data(update.slice);
    end_state(d);
    end_next(d, d.version + versions, d.updates + 1);
  }
}

void Shard::apply(int slice, const std::vector<PartialSum>& parts, int64_t leaves,
                  const UpdateInfo& info, int64_t versions, const float* read) {
  Serial serial;
  const SliceUpdate update{slice, parts, read};
  apply(std::span(&update, 1), leaves, info, versions, serial);
}

std::vector<NormPart> Shard::norms(std::span<const SliceUpdate> slices, int64_t leaves,
                                   double divisor, Parallel& parallel) {
  // Indexed by block of the generation: each slice but the last one consists of whole blocks.
  squares_.resize((pool_.floats() + kBlockElements - 1) / kBlockElements);
  const auto first_block = [](const SliceData& d) {
    return static_cast<size_t>(d.offset / kBlockElements);
  };
  work_.clear();
  for (const SliceUpdate& of : slices) {
    work_.push_back(work_of(of));
    work_.back().squares = squares_.data() + first_block(data(of.slice));
  }
  engine_->square(work_, leaves, divisor, parallel);
  std::vector<NormPart> out;
  for (const SliceUpdate& of : slices) {
    const SliceData& d = data(of.slice);
    const auto squares =
        std::span(squares_).subspan(first_block(d), static_cast<size_t>(d.blocks.size()));
    for (const NormPart& part : norm_parts(squares, d.blocks.lo, map_.blocks())) {
      out.push_back(part);
    }
  }
  return out;
}

std::vector<TrustPart> Shard::trust_parts(std::span<const SliceUpdate> slices, int64_t leaves,
                                          const UpdateInfo& info, Parallel& parallel) {
  int64_t pieces = 0;
  for (const SliceUpdate& of : slices) pieces += data(of.slice).update.trust_pieces();
  trust_.resize(static_cast<size_t>(pieces));
  TrustSquares* next = trust_.data();
  work_.clear();
  for (const SliceUpdate& of : slices) {
    const SliceData& d = data(of.slice);
    PP_ASSERT(!d.ahead);
    work_.push_back(work_of(of));
    add_present(d, work_.back());
    work_.back().trust = next;
    next += d.update.trust_pieces();
  }
  engine_->measure(work_, leaves, info, parallel);
  std::vector<TrustPart> out;
  for (const SliceWork& work : work_) {
    const SliceData& d = data(slices[static_cast<size_t>(&work - work_.data())].slice);
    const std::span<const TrustSquares> squares(work.trust,
                                                static_cast<size_t>(d.update.trust_pieces()));
    d.update.add_trust_parts(squares, d.blocks, map_.blocks(), out);
  }
  return out;
}

Payload Shard::payload(const std::shared_ptr<float[]>& generation, const SliceData& d) const {
  if (!generation) return {};
  const std::span<const float> floats(generation.get() + d.offset,
                                      static_cast<size_t>(d.elements.size()));
  return {generation, std::as_bytes(floats), engine_->on_device()};
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

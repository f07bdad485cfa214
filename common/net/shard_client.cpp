#include "common/net/shard_client.h"

#include <algorithm>
#include <numeric>

#include "common/base/error.h"

namespace pushpull {

namespace {

constexpr size_t kWindow = 8;          // slices requested at once
constexpr int64_t kRepeatMs = 1000;    // an answer counts as lost after this time
constexpr int64_t kNotReadyMs = 10;    // wait before asking a server that is not ready again
constexpr int64_t kNotStoredMs = 200;  // the previous checkpoint is still being written

}  // namespace

ShardClient::ShardClient(uint64_t term_id, uint64_t incarnation, const SliceMap& map,
                         size_t state_vectors)
    : term_id_(term_id), incarnation_(incarnation), map_(map), state_vectors_(state_vectors) {}

std::vector<int> ShardClient::all_slices() const {
  std::vector<int> out(static_cast<size_t>(map_.slices()));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

void ShardClient::begin(Mode mode, std::vector<int> slices, int64_t now_ms) {
  PP_ASSERT(!busy());
  if (slices.empty()) return;
  slices_ = std::move(slices);
  mode_ = mode;
  next_slice_ = 0;
  asked_.clear();
  fill_window(now_ms);
}

void ShardClient::load(std::shared_ptr<const FlatState> state, int64_t now_ms) {
  to_send_ = {
      state->step, state->updates, state->weights, {state->slots.begin(), state->slots.end()}};
  to_load_ = std::move(state);
  begin(Mode::kLoad, all_slices(), now_ms);
}

void ShardClient::load(std::shared_ptr<const GatheredState> state, std::vector<int> slices,
                       int64_t now_ms) {
  to_load_again_ = std::move(state);
  begin(Mode::kLoad, std::move(slices), now_ms);
}

void ShardClient::fetch(int64_t step, bool state, int64_t now_ms) {
  begin_fetch(step, state, all_slices(), now_ms);
}

void ShardClient::fetch(int64_t step, std::vector<int> slices, int64_t now_ms) {
  begin_fetch(step, true, std::move(slices), now_ms);
}

void ShardClient::fetch_again(int64_t now_ms) {
  if (mode_ != Mode::kFetch) return;
  mode_ = Mode::kIdle;
  begin_fetch(step_, state_, std::exchange(slices_, {}), now_ms);
}

void ShardClient::begin_fetch(int64_t step, bool state, std::vector<int> slices, int64_t now_ms) {
  step_ = step;
  state_ = state;
  fetching_ = {step, 0, {}};
  fetching_.slices.resize(static_cast<size_t>(map_.slices()));
  begin(Mode::kFetch, std::move(slices), now_ms);
}

void ShardClient::store(FlatStateView state, std::vector<int> slices, int64_t now_ms) {
  step_ = state.step;
  to_send_ = std::move(state);
  begin(Mode::kStore, std::move(slices), now_ms);
}

int ShardClient::waiting_for() const {
  return asked_.empty() ? -1 : map_.server_of(asked_.front().slice);
}

void ShardClient::fill_window(int64_t now_ms) {
  while (asked_.size() < kWindow && next_slice_ < slices_.size()) {
    asked_.push_back({slices_[next_slice_], now_ms + kRepeatMs});
    send(slices_[next_slice_++]);
  }
}

Payload ShardClient::slice_of(std::span<const float> whole, int slice) const {
  const Range e = map_.elements(slice);
  const std::span<const float> part(whole.data() + e.lo, static_cast<size_t>(e.size()));
  if (mode_ == Mode::kLoad) return {to_load_, std::as_bytes(part)};
  // training changes the part once it is stored, while a repeated message may still be in flight
  auto copy = std::make_shared<std::vector<float>>(part.begin(), part.end());
  const auto bytes = std::as_bytes(std::span<const float>(*copy));
  return {std::move(copy), bytes};
}

// Returns the payloads of a Load or Store of the slice.
std::vector<Payload> ShardClient::payloads_of(int slice) const {
  if (to_load_again_) return to_load_again_->slices[static_cast<size_t>(slice)];
  std::vector<Payload> out{slice_of(to_send_.weights, slice)};
  for (const auto& slot : to_send_.slots) out.push_back(slice_of(slot, slice));
  return out;
}

void ShardClient::send(int slice) {
  ToShard out{map_.server_of(slice), {}};
  wire::Header& header = out.message.header;
  wire::Sender* sender = nullptr;
  if (mode_ == Mode::kLoad || mode_ == Mode::kStore) {
    if (mode_ == Mode::kLoad) {
      header.mutable_load()->set_slice(slice);
      sender = header.mutable_load()->mutable_sender();
    } else {
      header.mutable_store()->set_slice(slice);
      header.mutable_store()->set_step(step_);
      header.mutable_store()->set_updates(to_send_.updates);
      sender = header.mutable_store()->mutable_sender();
    }
    out.message.payloads = payloads_of(slice);
  } else {
    header.mutable_fetch()->set_slice(slice);
    header.mutable_fetch()->set_step(step_);
    header.mutable_fetch()->set_state(state_);
    sender = header.mutable_fetch()->mutable_sender();
  }
  sender->set_term_id(term_id_);
  sender->set_incarnation(incarnation_);
  outgoing_.push_back(std::move(out));
}

bool ShardClient::finish(int slice, int64_t now_ms) {
  const auto found = std::find_if(asked_.begin(), asked_.end(),
                                  [&](const Request& r) { return r.slice == slice; });
  if (found == asked_.end()) return true;  // a duplicate answer
  asked_.erase(found);
  ++transferred_;
  ++answers_;
  fill_window(now_ms);
  if (!asked_.empty()) return true;
  if (mode_ == Mode::kFetch) fetched_ = std::exchange(fetching_, {});
  to_load_.reset();
  to_load_again_.reset();
  to_send_ = {};
  mode_ = Mode::kIdle;
  return true;
}

bool ShardClient::on_message(const Message& message, int64_t now_ms) {
  const wire::Header& header = message.header;
  if (header.has_loaded() && mode_ == Mode::kLoad) return finish(header.loaded().slice(), now_ms);
  if (header.has_stored() && mode_ == Mode::kStore && header.stored().step() == step_) {
    return finish(header.stored().slice(), now_ms);
  }
  if (header.has_status()) {
    ++answers_;
    const int64_t pause_ms = mode_ == Mode::kStore ? kNotStoredMs : kNotReadyMs;
    for (Request& r : asked_) r.repeat_ms = std::min(r.repeat_ms, now_ms + pause_ms);
    return true;
  }
  if (!header.has_fetched()) return header.has_loaded() || header.has_stored();
  const wire::Fetched& fetched = header.fetched();
  if (mode_ != Mode::kFetch || fetched.step() != step_) return true;
  if (fetched.slice() < 0 || fetched.slice() >= map_.slices()) return false;
  const size_t vectors = state_ ? state_vectors_ : 0;
  if (message.payloads.size() != 1 + vectors) return false;
  const Range e = map_.elements(fetched.slice());
  for (const Payload& p : message.payloads) {
    if (p.float_count() != static_cast<size_t>(e.size())) return false;
  }
  fetching_.updates = fetched.updates();
  fetching_.slices[static_cast<size_t>(fetched.slice())] = message.payloads;
  return finish(fetched.slice(), now_ms);
}

void ShardClient::on_tick(int64_t now_ms) {
  for (Request& r : asked_) {
    if (now_ms < r.repeat_ms) continue;
    r.repeat_ms = now_ms + kRepeatMs;
    send(r.slice);
  }
}

}  // namespace pushpull

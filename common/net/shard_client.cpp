#include "common/net/shard_client.h"

#include <algorithm>
#include <cstring>

#include "common/error.h"

namespace pushpull {

namespace {

constexpr size_t kWindow = 8;        // slices asked for at once
constexpr int64_t kRepeatMs = 1000;  // when an answer counts as lost
constexpr int64_t kNotReadyMs = 10;  // a server that is not there yet is asked again

}  // namespace

ShardClient::ShardClient(uint64_t run, uint64_t incarnation, const SliceMap& map,
                         size_t state_vectors)
    : run_(run), incarnation_(incarnation), map_(map), state_vectors_(state_vectors) {}

void ShardClient::begin(Mode mode, int64_t now_ms) {
  PP_ASSERT(!busy());
  mode_ = mode;
  next_slice_ = 0;
  asked_.clear();
  fill_window(now_ms);
}

void ShardClient::load(std::shared_ptr<const FlatState> state, int64_t now_ms) {
  to_load_ = std::move(state);
  begin(Mode::kLoad, now_ms);
}

void ShardClient::fetch(int64_t step, int64_t now_ms) {
  step_ = step;
  const auto total = static_cast<size_t>(map_.total());
  fetching_ = std::make_shared<FlatState>();
  fetching_->step = step;
  fetching_->weights.resize(total);
  fetching_->slots.assign(state_vectors_, std::vector<float>(total));
  begin(Mode::kFetch, now_ms);
}

int ShardClient::waiting_for() const {
  return asked_.empty() ? -1 : map_.server_of(asked_.front().slice);
}

void ShardClient::fill_window(int64_t now_ms) {
  while (asked_.size() < kWindow && next_slice_ < map_.slices()) {
    asked_.push_back({next_slice_, now_ms + kRepeatMs});
    send(next_slice_++);
  }
}

Payload ShardClient::slice_of(const std::vector<float>& whole, int slice) const {
  const Range e = map_.elements(slice);
  const std::span<const float> part(whole.data() + e.lo, static_cast<size_t>(e.size()));
  return {to_load_, std::as_bytes(part)};
}

void ShardClient::send(int slice) {
  ToShard out{map_.server_of(slice), {}};
  wire::Header& header = out.message.header;
  wire::Sender* sender = nullptr;
  if (mode_ == Mode::kLoad) {
    header.mutable_load()->set_slice(slice);
    sender = header.mutable_load()->mutable_sender();
    out.message.payloads.push_back(slice_of(to_load_->weights, slice));
    for (const auto& slot : to_load_->slots) out.message.payloads.push_back(slice_of(slot, slice));
  } else {
    header.mutable_fetch()->set_slice(slice);
    header.mutable_fetch()->set_step(step_);
    header.mutable_fetch()->set_state(true);
    sender = header.mutable_fetch()->mutable_sender();
  }
  sender->set_run(run_);
  sender->set_incarnation(incarnation_);
  outgoing_.push_back(std::move(out));
}

bool ShardClient::finish(int slice, int64_t now_ms) {
  const auto found = std::find_if(asked_.begin(), asked_.end(),
                                  [&](const Request& r) { return r.slice == slice; });
  if (found == asked_.end()) return true;  // answered twice
  asked_.erase(found);
  fill_window(now_ms);
  if (!asked_.empty()) return true;
  if (mode_ == Mode::kFetch) fetched_ = std::move(fetching_);
  to_load_.reset();
  mode_ = Mode::kIdle;
  return true;
}

bool ShardClient::on_message(const Message& message, int64_t now_ms) {
  const wire::Header& header = message.header;
  if (header.has_loaded() && mode_ == Mode::kLoad) return finish(header.loaded().slice(), now_ms);
  if (header.has_status()) {
    for (Request& r : asked_) r.repeat_ms = std::min(r.repeat_ms, now_ms + kNotReadyMs);
    return true;
  }
  if (!header.has_fetched()) return header.has_loaded();
  const wire::Fetched& fetched = header.fetched();
  if (mode_ != Mode::kFetch || fetched.step() != step_) return true;
  if (fetched.slice() < 0 || fetched.slice() >= map_.slices()) return false;
  if (message.payloads.size() != 1 + state_vectors_) return false;
  const Range e = map_.elements(fetched.slice());
  for (const Payload& p : message.payloads) {
    if (p.float_count() != static_cast<size_t>(e.size())) return false;
  }
  fetching_->updates = fetched.updates();
  std::memcpy(fetching_->weights.data() + e.lo, message.payloads[0].bytes.data(),
              message.payloads[0].bytes.size());
  for (size_t s = 0; s < state_vectors_; ++s) {
    const Payload& p = message.payloads[1 + s];
    std::memcpy(fetching_->slots[s].data() + e.lo, p.bytes.data(), p.bytes.size());
  }
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

#include "ps/server/slice_transfers.h"

#include <string>
#include <utility>

#include "ps/engine/shard.h"
#include "ps/server/aggregation.h"
#include "ps/server/barrier_gate.h"

namespace pushpull {

namespace {

void add_fetched(Outbox& outbox, const PeerId& to, const wire::Fetch& fetch, int64_t updates,
                 std::vector<Payload> payloads) {
  Message answer;
  wire::Fetched* fetched = answer.header.mutable_fetched();
  fetched->set_slice(fetch.slice());
  fetched->set_step(fetch.step());
  fetched->set_updates(updates);
  answer.payloads = std::move(payloads);
  outbox.push_back({to, std::move(answer)});
}

}  // namespace

SliceTransfers::SliceTransfers(bool load, int64_t updates, Shard& shard, BarrierGate& gate,
                               Aggregation& aggregation)
    : load_(load), updates_(updates), shard_(shard), gate_(gate), aggregation_(aggregation) {
  if (load_) to_load_.insert(shard_.slices().begin(), shard_.slices().end());
  if (ready()) begin();
}

void SliceTransfers::begin() {
  gate_.take_start(updates_, aggregation_.start_has_state());
  aggregation_.try_open_barrier();  // if the run starts at its end
}

Checked SliceTransfers::check_slice(int slice) const {
  if (shard_.owns(slice)) return {};
  return refused("slice", "a slice of this server", std::to_string(slice));
}

// Checks the sizes of weights and state vectors; at least `least` payloads.
Checked SliceTransfers::check_sizes(int slice, const std::vector<Payload>& payloads,
                                    size_t least) const {
  const size_t most = 1 + shard_.state_vectors();
  if (payloads.size() < least || payloads.size() > most) {
    return refused("slice-payloads", std::to_string(least) + " to " + std::to_string(most),
                   std::to_string(payloads.size()));
  }
  const int64_t bytes = shard_.elements(slice) * static_cast<int64_t>(sizeof(float));
  for (const Payload& payload : payloads) {
    if (std::ssize(payload.bytes) != bytes) {
      return refused("slice-bytes", bytes, std::ssize(payload.bytes));
    }
  }
  return {};
}

Checked SliceTransfers::load(const PeerId& peer, const wire::Load& load,
                             const std::vector<Payload>& payloads, Outbox& outbox) {
  if (!load_) {
    return refused("load-start", "a run that starts by its init rules", "weights");
  }
  if (Checked refusal = check_slice(load.slice())) return refusal;
  if (Checked refusal = check_sizes(load.slice(), payloads, 1)) return refusal;
  // a repeated Load must not undo updates
  if (to_load_.contains(load.slice())) {
    shard_.load(load.slice(), payloads);
    to_load_.erase(load.slice());
    if (ready()) begin();
  }
  Message answer;
  answer.header.mutable_loaded()->set_slice(load.slice());
  outbox.push_back({peer, std::move(answer)});
  return {};
}

Checked SliceTransfers::fetch(const PeerId& peer, const wire::Fetch& fetch, Outbox& outbox) const {
  if (Checked refusal = check_slice(fetch.slice())) return refusal;
  if (fetch.step() < 0) {
    return refused("fetch-step", "a step from 0", std::to_string(fetch.step()));
  }
  if (fetch.step() == gate_.barriers().start_step && fetch.state()) {
    return fetch_start(peer, fetch, outbox);
  }
  const Snapshot* snapshot = gate_.find(fetch.step());
  if (snapshot == nullptr) {
    add_not_ready(outbox, peer);
    return {};
  }
  std::vector<Payload> payloads{snapshot->weights.at(fetch.slice())};
  if (fetch.state()) {
    const std::vector<Payload>& state = snapshot->state.at(fetch.slice());
    payloads.insert(payloads.end(), state.begin(), state.end());
  }
  add_fetched(outbox, peer, fetch, snapshot->updates, std::move(payloads));
  return {};
}

// Answers a worker with the initial weights and optimizer state. They do not change until the first
// Store, which no worker sends before all have started.
Checked SliceTransfers::fetch_start(const PeerId& peer, const wire::Fetch& fetch,
                                    Outbox& outbox) const {
  if (!aggregation_.start_has_state()) {
    return refused("fetch-state", "the start's weights alone to be asked for",
                   "the optimizer's state");
  }
  if (!ready() || shard_.version(fetch.slice()) != fetch.step()) {
    add_not_ready(outbox, peer);
    return {};
  }
  std::vector<Payload> payloads = shard_.state(fetch.slice());
  payloads.insert(payloads.begin(), shard_.weights(fetch.slice()));
  add_fetched(outbox, peer, fetch, updates_, std::move(payloads));
  return {};
}

Checked SliceTransfers::store(const PeerId& peer, const wire::Store& store,
                              const std::vector<Payload>& payloads, Outbox& outbox) {
  if (Checked refusal = check_slice(store.slice())) return refusal;
  if (Checked refusal = aggregation_.check(store)) return refusal;
  Checked sizes = check_sizes(store.slice(), payloads, 1 + shard_.state_vectors());
  if (sizes) return sizes;
  if (!aggregation_.take_stored(store, payloads)) {
    add_not_ready(outbox, peer);
    return {};
  }
  Message answer;
  answer.header.mutable_stored()->set_slice(store.slice());
  answer.header.mutable_stored()->set_step(store.step());
  outbox.push_back({peer, std::move(answer)});
  return {};
}

}  // namespace pushpull

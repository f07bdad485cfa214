#include "ps/server/stored_weights.h"

#include <string>
#include <utility>

#include "ps/engine/shard.h"

namespace pushpull {

StoredWeights::StoredWeights(AggregationSetup setup)
    : Aggregation(std::move(setup)), ledger_(floor_, leaves_) {}

Checked StoredWeights::check(const wire::Push& push) const {
  if (setup_.rank != 0) {
    return refused("push-losses", "losses at server 0 only",
                   "some at server " + std::to_string(setup_.rank));
  }
  const bool has_losses = push.stage() + 1 == shard().map().stages();
  if (!has_losses && push.losses_size() == 0) return {};
  if (push.losses_size() == push.hi() - push.lo()) return {};
  return refused("push-losses", push.hi() - push.lo(), push.losses_size());
}

Checked StoredWeights::check(const wire::Pull& /*pull*/) const {
  return refused("pull-strategy", "no pull from workers, which keep the weights", "one");
}

Checked StoredWeights::check(const wire::Store& store) const {
  if (!barriers().store_due(store.step())) {
    return refused("store-step", "a step with a checkpoint", std::to_string(store.step()));
  }
  const int64_t updates = setup_.updates + store.step() - barriers().start_step;
  if (store.updates() == updates) return {};
  return refused("store-updates", updates, store.updates());
}

void StoredWeights::take_push(ReceivedPush push) {
  const bool counted = !ledger_.contains(push.step, push.range);
  if (counted) ledger_.add(push.step, push.range);
  setup_.observer.on_commit(commit_of(push, counted));
  staleness_[0] += ledger_.floor() - floor_;
  for (; floor_ < ledger_.floor(); ++floor_) {
    // Weights that are stored open their barrier; an evaluation alone needs nothing here.
    const int64_t step = floor_ + 1;
    if (barriers().is_barrier(step) && !barriers().store_due(step)) {
      setup_.observer.on_barrier_open(step);
    }
  }
  try_open_barrier();
}

bool StoredWeights::take_stored(const wire::Store& store, std::span<const Payload> payloads) {
  if (store.step() <= shard().version(store.slice())) return true;  // a duplicate
  const bool another = store.step() != storing_step_;
  if (another && storing_step_ > setup_.gate.newest_open()) return false;
  if (another) stored_slices_ = 0;
  storing_step_ = store.step();
  shard().store(store.slice(), payloads, store.step(), store.updates());
  ++stored_slices_;
  try_open_barrier();
  return true;
}

bool StoredWeights::try_open_barrier() {
  if (barriers().starts_at_end()) {
    return setup_.gate.due(floor_) && setup_.gate.open(floor_, updates_, false);
  }
  if (storing_step_ <= setup_.gate.newest_open()) return false;
  if (stored_slices_ < std::ssize(shard().slices())) return false;
  if (setup_.rank == 0 && floor_ < storing_step_) return false;
  updates_ = setup_.updates + storing_step_ - barriers().start_step;
  return setup_.gate.open(storing_step_, updates_, false);
}

}  // namespace pushpull

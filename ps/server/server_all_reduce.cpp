// Server: what it does where the workers update by themselves (all-reduce). It hands out the first
// weights, takes in losses (server 0), and keeps what the workers store at checkpoints.
#include "common/base/error.h"
#include "ps/server/server.h"

namespace pushpull {

// A push without parts: losses of micro-batches that the workers have summed among themselves.
bool Server::on_report(const PeerId& peer, uint64_t incarnation, Worker& worker,
                       const wire::Exchange& exchange) {
  const wire::Push& push = exchange.push();
  if (setup_.rank != 0 || !exchange.has_push() || exchange.has_pull()) return false;
  if (push.parts_size() != 0 || push.parts_total() != 0) return false;
  if (!push_is_near(worker, push) || push.losses_size() != push.hi() - push.lo()) return false;
  if (!push.data_hash().empty() && push.data_hash().size() != HashSum::kBytes) return false;
  if (!worker.pushes.complete(push.number())) {
    worker.pushes.mark(push.number());
    const Range range{push.lo(), push.hi()};
    Commit commit{incarnation, push.step(), range, {}, true};
    commit.losses.assign(push.losses().begin(), push.losses().end());
    if (!push.data_hash().empty()) commit.data_hash = HashSum::from_bytes(push.data_hash());
    commit.counted = !ledger_.contains(push.step(), range);
    if (commit.counted) ledger_.add(push.step(), range);
    if (observer_ != nullptr) observer_->on_commit(commit);
    (*stats_.mutable_staleness())[0] += ledger_.floor() - floor_;
    for (; floor_ < ledger_.floor(); ++floor_) {
      // a checkpoint opens its barrier when it is stored; an evaluation alone needs nothing here
      const int64_t step = floor_ + 1;
      const Barriers& barriers = setup_.barriers;
      if (barriers.is_barrier(step) && !barriers.checkpoint_due(step)) {
        if (observer_ != nullptr) observer_->on_barrier_open(step);
      }
    }
    try_open_stored();
  }
  send_status(peer, 0, worker.pushes.through(), false);
  return true;
}

bool Server::on_store(const PeerId& peer, const wire::Store& store,
                      const std::vector<Payload>& payloads) {
  if (!all_reduce() || store.sender().run() != setup_.run || !shard_.owns(store.slice())) {
    return false;
  }
  if (!workers_.contains(store.sender().incarnation())) {
    send_status(peer, 0, 0, true);
    return true;
  }
  const auto bytes = static_cast<size_t>(shard_.elements(store.slice())) * sizeof(float);
  if (payloads.size() != 1 + shard_.state_vectors()) return false;
  for (const Payload& payload : payloads) {
    if (payload.bytes.size() != bytes) return false;
  }
  const int64_t done = store.step() - setup_.barriers.start_step;
  if (!setup_.barriers.checkpoint_due(store.step()) || store.updates() != setup_.updates + done) {
    return false;
  }
  if (store.step() > shard_.version(store.slice())) {
    const bool another = store.step() != storing_step_;
    // the snapshot of the barrier before must be taken first
    if (another && storing_step_ > open_barrier_) {
      send_status(peer, 0, 0, true);
      return true;
    }
    if (another) stored_slices_ = 0;
    storing_step_ = store.step();
    shard_.store(store.slice(), payloads, store.step(), store.updates());
    ++stored_slices_;
    try_open_stored();
  }
  Message answer;
  answer.header.mutable_stored()->set_slice(store.slice());
  answer.header.mutable_stored()->set_step(store.step());
  outgoing_.push_back({peer, std::move(answer)});
  return true;
}

// A checkpoint's barrier is open when all slices of it are here, and at server 0 all losses before.
void Server::try_open_stored() {
  if (storing_step_ <= open_barrier_) return;
  if (stored_slices_ < static_cast<int64_t>(shard_.slices().size())) return;
  if (setup_.rank == 0 && floor_ < storing_step_) return;
  updates_ = setup_.updates + storing_step_ - setup_.barriers.start_step;
  if (!hold_checkpoint(storing_step_)) return;
  open_barrier_ = storing_step_;
  if (observer_ != nullptr) observer_->on_barrier_open(open_barrier_);
}

// A worker asks for the first weights and optimizer state: held since the start, and the same until
// the first ones are stored, which no worker does before all have started.
bool Server::fetch_start(const PeerId& peer, const wire::Fetch& fetch) {
  if (!all_reduce()) return false;
  if (!ready() || shard_.version(fetch.slice()) != fetch.step()) {
    send_status(peer, 0, 0, true);
    return true;
  }
  std::vector<Payload> payloads = shard_.state(fetch.slice());
  payloads.insert(payloads.begin(), shard_.weights(fetch.slice()));
  send_fetched(peer, fetch, setup_.updates, std::move(payloads));
  return true;
}

}  // namespace pushpull

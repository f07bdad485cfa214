#include "ps/server/server.h"

#include <algorithm>
#include <cmath>

#include "common/base/error.h"
#include "common/net/tensor_wire.h"
#include "common/update/schedule.h"

namespace pushpull {

namespace {

// A worker sends one push of each of its shares, then waits until all have arrived; numbers further
// ahead are a fault or an attack.
constexpr int64_t kMaxPushesAhead = 16;
// One that is being gathered, and the next one.
constexpr size_t kMostCheckpoints = 2;
}  // namespace

ServerSetup setup_of(const wire::State& state, uint64_t run, uint64_t incarnation, int servers,
                     const Job& job) {
  ServerSetup setup;
  setup.run = run;
  setup.incarnation = incarnation;
  setup.rank = state.rank();
  setup.servers = servers;
  setup.job = job;
  setup.table = from_wire(state.tensors());
  setup.barriers = barriers_of(job, state.start_step(), state.end_step());
  setup.total_steps = state.total_steps();
  setup.updates = state.updates();
  setup.shares = state.shares();
  setup.load = state.load();
  return setup;
}

OptimizerOptions server_optimizer(const Job& job) {
  if (job.strategy.kind != StrategyKind::kLocal) return job.optimizer;
  OptimizerOptions outer;
  outer.kind = job.outer_momentum > 0 ? OptimizerKind::kNesterov : OptimizerKind::kSgd;
  outer.momentum = job.outer_momentum;
  return outer;
}

Server::Server(ServerSetup setup, TrainingObserver* observer, Parallel* parallel)
    : setup_(std::move(setup)),
      observer_(observer),
      parallel_(parallel == nullptr ? &serial_ : parallel),
      leaves_(setup_.job.micro_batches()),
      map_(setup_.table.total, setup_.job.slice_bytes, setup_.servers),
      shard_(map_, setup_.rank, setup_.table, server_optimizer(setup_.job),
             setup_.engine ? setup_.engine : host_engine(setup_.memory),
             CodecMap(setup_.table, setup_.job.codec, setup_.job.codec_tensors)),
      narrow_(setup_.table.total == 0 ? 0 : map_.elements(0).size()),
      sums_(shard_.slices(), local() ? setup_.shares : leaves_),
      ledger_(setup_.barriers.start_step, leaves_),
      floor_(setup_.barriers.start_step),
      updates_(setup_.updates),
      open_barrier_(setup_.barriers.start_step) {
  if (setup_.load) {
    to_load_.insert(shard_.slices().begin(), shard_.slices().end());
  } else {
    shard_.initialise(setup_.job.seed);
  }
  shard_.set_start(floor_, updates_);
  // the next one; in async and ssp also those that two workers hold meanwhile; one that is held for
  // a checkpoint
  const int held = setup_.barriers.checkpoint_every > 0 ? 1 : 0;
  if (!all_reduce()) shard_.reserve((lockstep() ? 1 : 3) + held);
  if (ready()) start_ = take_snapshot(floor_, all_reduce());
}

bool Server::on_data(const PeerId& peer, Message message) {
  const bool taken = take(peer, std::move(message));
  work();
  return taken;
}

void Server::work() {
  apply_due();
  keep_waiting();
  if (std::exchange(to_answer_, false)) answer_all();
}

// What waits for the rest of its push or step, before the worker hears that it has come.
void Server::keep_waiting() {
  if (!shard_.keeps_parts()) return;
  waiting_.clear();
  const auto add = [this](PartialSum& part) {
    if (part.payload.on_device && !part.kept) waiting_.push_back(&part);
  };
  sums_.for_parts(add);
  backups_.for_parts(add);
  for (auto& [incarnation, worker] : workers_) {
    for (auto& [number, assembly] : worker.open) {
      for (auto& [slice, part] : assembly.parts) add(part);
    }
  }
  if (!waiting_.empty()) shard_.keep(waiting_);
}

bool Server::take(const PeerId& peer, Message message) {
  const wire::Header& header = message.header;
  switch (header.body_case()) {
    case wire::Header::kExchange:
      return on_exchange(peer, header.exchange(), message.payloads);
    case wire::Header::kReceived:
      return on_received(header.received());
    case wire::Header::kLoad:
      return on_load(peer, header.load(), message.payloads);
    case wire::Header::kFetch:
      return on_fetch(peer, header.fetch());
    case wire::Header::kStore:
      return on_store(peer, header.store(), message.payloads);
    default:
      return false;
  }
}

void Server::on_state(const wire::State& state) {
  work();  // what has come counts before members change
  std::map<uint64_t, Worker> known;
  for (const wire::Member& member : state.workers()) {
    Worker& worker = known[member.incarnation()] = std::move(workers_[member.incarnation()]);
    worker.rank = member.rank();
  }
  workers_ = std::move(known);
  released_barrier_ = std::max(released_barrier_, state.released_barrier());
  evaluated_barrier_ = std::max(evaluated_barrier_, state.evaluated_barrier());
  while (!checkpoints_.empty() && checkpoints_.front().step <= released_barrier_) {
    checkpoints_.pop_front();
  }
  if (released_barrier_ >= setup_.barriers.start_step) start_ = {};
  try_open_barrier();
}

// ---- initial weights and snapshots ----

bool Server::on_load(const PeerId& peer, const wire::Load& load,
                     const std::vector<Payload>& payloads) {
  if (load.sender().run() != setup_.run || !setup_.load || !shard_.owns(load.slice())) return false;
  const auto bytes = static_cast<size_t>(shard_.elements(load.slice())) * sizeof(float);
  if (payloads.empty() || payloads.size() > 1 + shard_.state_vectors()) return false;
  for (const Payload& payload : payloads) {
    if (payload.bytes.size() != bytes) return false;
  }
  // a repeated one must not undo what training has done since
  if (to_load_.contains(load.slice())) {
    shard_.load(load.slice(), payloads);
    to_load_.erase(load.slice());
    if (ready()) start_ = take_snapshot(floor_, all_reduce());
  }
  Message answer;
  answer.header.mutable_loaded()->set_slice(load.slice());
  outgoing_.push_back({peer, std::move(answer)});
  return true;
}

bool Server::on_fetch(const PeerId& peer, const wire::Fetch& fetch) {
  if (fetch.sender().run() != setup_.run || !shard_.owns(fetch.slice())) return false;
  if (fetch.step() < 0) return false;  // no snapshot is marked by -1
  const bool at_start = fetch.step() == setup_.barriers.start_step;
  if (at_start && fetch.state()) return fetch_start(peer, fetch);
  const auto held = std::find_if(checkpoints_.begin(), checkpoints_.end(),
                                 [&](const Snapshot& s) { return s.step == fetch.step(); });
  const Snapshot* snapshot = at_start ? &start_ : held == checkpoints_.end() ? nullptr : &*held;
  if (snapshot == nullptr || snapshot->step != fetch.step()) {
    send_status(peer, 0, 0, true);
    return true;
  }
  std::vector<Payload> payloads{snapshot->weights.at(fetch.slice())};
  if (fetch.state()) {
    const std::vector<Payload>& state = snapshot->state.at(fetch.slice());
    payloads.insert(payloads.end(), state.begin(), state.end());
  }
  send_fetched(peer, fetch, snapshot->updates, std::move(payloads));
  return true;
}

void Server::send_fetched(const PeerId& peer, const wire::Fetch& fetch, int64_t updates,
                          std::vector<Payload> payloads) {
  Message answer;
  wire::Fetched* fetched = answer.header.mutable_fetched();
  fetched->set_slice(fetch.slice());
  fetched->set_step(fetch.step());
  fetched->set_updates(updates);
  answer.payloads = std::move(payloads);
  outgoing_.push_back({peer, std::move(answer)});
}

Server::Snapshot Server::take_snapshot(int64_t step, bool state) {
  if (state) shard_.hold_state();
  Snapshot out;
  out.step = step;
  out.updates = updates_;
  for (const int slice : shard_.slices()) {
    out.weights[slice] = shard_.weights(slice);
    if (state) out.state[slice] = shard_.state(slice);
  }
  return out;
}

bool Server::room_for_checkpoint() const { return checkpoints_.size() < kMostCheckpoints; }

// False: not yet. Memory stays bounded, and training waits for a slow disk.
bool Server::hold_checkpoint(int64_t step) {
  if (!room_for_checkpoint()) {
    if (observer_ != nullptr) observer_->on_checkpoint_waits(step);
    return false;
  }
  checkpoints_.push_back(take_snapshot(step, true));
  return true;
}

// Weights of this step may be handed out: the snapshot of the last barrier before has been taken.
// Or, where slices are answered one by one, it certainly will be together with the last slice's
// update, before which nobody can push.
bool Server::passes_barrier(int64_t step) const {
  const Barriers& barriers = setup_.barriers;
  const int64_t barrier = barriers.last(step);
  if (open_barrier_ >= barrier) return true;
  if (!whole_steps() || barriers.next(open_barrier_) != barrier) return false;
  return !barriers.checkpoint_due(barrier) || room_for_checkpoint();
}

void Server::try_open_barrier() {
  if (all_reduce()) {
    try_open_stored();
    return;
  }
  const Barriers& barriers = setup_.barriers;
  if (floor_ <= open_barrier_ || !barriers.is_barrier(floor_)) return;
  // a worker that is behind still needs the weights of the evaluation before
  const bool evaluation = barriers.evaluation_due(floor_);
  if (backup() && evaluation && at_barrier_.step > evaluated_barrier_) return;
  if (barriers.checkpoint_due(floor_) && !hold_checkpoint(floor_)) return;
  if (backup() ? evaluation : !whole_steps()) at_barrier_ = take_snapshot(floor_, false);
  open_barrier_ = floor_;
  if (observer_ != nullptr) observer_->on_barrier_open(floor_);
  answer_all();
}

// ---- pushes ----

bool Server::on_exchange(const PeerId& peer, const wire::Exchange& exchange,
                         std::vector<Payload>& payloads) {
  if (exchange.sender().run() != setup_.run) return false;
  const auto found = workers_.find(exchange.sender().incarnation());
  if (found == workers_.end() || !ready()) {
    send_status(peer, exchange.pull().number(), 0, true);
    return true;
  }
  if (all_reduce()) return on_report(peer, found->first, found->second, exchange);
  if (exchange.has_pull() && !pull_fits(found->second, exchange.pull())) return false;
  if (exchange.has_push()) {
    if (!push_fits(found->second, exchange.push(), payloads)) return false;
    take_push(found->first, found->second, exchange.push(), payloads);
    const PushTracker& pushes = found->second.pushes;
    if (exchange.push().acknowledge() && pushes.complete(exchange.push().number())) {
      send_status(peer, 0, pushes.through(), false);
    }
  }
  if (exchange.has_pull()) take_pull(peer, found->second, exchange.pull());
  to_answer_ = true;
  return true;
}

bool Server::push_is_near(const Worker& worker, const wire::Push& push) const {
  const Range range{push.lo(), push.hi()};
  bool is_share = false;
  for (int i = 0; i < setup_.shares; ++i) {
    is_share = is_share || share_range(i, setup_.shares, leaves_) == range;
  }
  if (!is_share || push.number() < 1) return false;
  if (push.number() > worker.pushes.through() + kMaxPushesAhead + setup_.shares) return false;
  return push.step() >= setup_.barriers.start_step && push.step() < setup_.barriers.end_step;
}

bool Server::push_fits(const Worker& worker, const wire::Push& push,
                       const std::vector<Payload>& payloads) const {
  const Range range{push.lo(), push.hi()};
  const auto open = worker.open.find(push.number());
  if (open != worker.open.end() &&
      (open->second.step != push.step() || open->second.range != range)) {
    return false;
  }
  if (!push_is_near(worker, push) || !reads_fit(push)) return false;
  const int64_t steps = steps_of(push);
  if (!setup_.barriers.starts_round(push.step())) return false;
  if (steps != setup_.barriers.round_end(push.step()) - push.step()) return false;
  if (push.losses_size() != 0 && push.losses_size() != range.size() * steps) return false;
  if (!push.data_hash().empty() && push.data_hash().size() != HashSum::kBytes) return false;
  if (static_cast<size_t>(push.parts_size()) != payloads.size()) return false;
  const auto subtrees = sync() ? maximal_subtrees(range, leaves_) : std::vector<Range>{range};
  if (static_cast<size_t>(push.parts_total()) != subtrees.size() * shard_.slices().size()) {
    return false;
  }
  for (int i = 0; i < push.parts_size(); ++i) {
    const wire::Part& part = push.parts(i);
    const Range node{part.lo(), part.hi()};
    if (!shard_.owns(part.slice())) return false;
    if (std::find(subtrees.begin(), subtrees.end(), node) == subtrees.end()) return false;
    const std::span<const std::byte> bytes = payloads[static_cast<size_t>(i)].bytes;
    if (!shard_.codec(part.slice()).fits(bytes.data(), bytes.size())) return false;
  }
  // nobody can have computed on weights that do not exist yet
  return open_barrier_ >= setup_.barriers.last(push.step()) &&
         floor_ >= needed_floor(setup_.job.strategy, setup_.barriers, push.step());
}

void Server::take_push(uint64_t incarnation, Worker& worker, const wire::Push& push,
                       std::vector<Payload>& payloads) {
  if (worker.pushes.complete(push.number())) return;
  Assembly& assembly = worker.open[push.number()];
  assembly.incarnation = incarnation;
  assembly.step = push.step();
  assembly.range = {push.lo(), push.hi()};
  if (push.losses_size() != 0) assembly.losses.assign(push.losses().begin(), push.losses().end());
  if (push.squares() != 0.0) assembly.squares = push.squares();
  if (!push.data_hash().empty()) assembly.data_hash = HashSum::from_bytes(push.data_hash());
  // what `part.lo` can be, so that every part has a number
  const auto share_leaves = static_cast<size_t>(assembly.range.size());
  assembly.seen.reserve(share_leaves * shard_.slices().size());
  for (int i = 0; i < push.parts_size(); ++i) {
    const wire::Part& part = push.parts(i);
    const auto leaf = static_cast<size_t>(part.lo() - push.lo());
    if (!assembly.seen.insert(place(part.slice()) * share_leaves + leaf)) continue;
    Payload& payload = payloads[static_cast<size_t>(i)];
    stats_.set_bytes_pushed(stats_.bytes_pushed() + static_cast<int64_t>(payload.bytes.size()));
    PartialSum sum{{part.lo(), part.hi()}, std::move(payload)};
    if (local()) sum.range = {share_index(sum.range), share_index(sum.range) + 1};
    if (whole_steps()) {
      add_step_part(part.slice(), push.step(), std::move(sum));
    } else if (!too_late(push.step())) {
      assembly.parts[part.slice()] = std::move(sum);
    }
  }
  if (static_cast<int>(assembly.seen.size()) < push.parts_total()) return;
  Assembly whole = std::move(assembly);
  worker.open.erase(push.number());
  worker.pushes.mark(push.number());
  if (lockstep()) return finish_push(std::move(whole), steps_of(push));
  whole.reads.assign(push.read_versions().begin(), push.read_versions().end());
  for (const auto& [slice, part] : whole.parts) {
    due_bytes_ += static_cast<int64_t>(part.payload.bytes.size());
  }
  due_pushes_.push_back(std::move(whole));
}

void Server::finish_push(Assembly assembly, int64_t steps) {
  if (backup()) return finish_backup_push(std::move(assembly));
  const Range range = assembly.range;
  Commit commit{assembly.incarnation,       assembly.step, range,
                std::move(assembly.losses), true,          assembly.data_hash};
  commit.counted = !ledger_.contains(assembly.step, range);
  commit.steps = steps;
  if (commit.counted) {
    for (int64_t i = 0; i < commit.steps; ++i) ledger_.add(assembly.step + i, range);
    if (!whole_steps()) apply_push(assembly);
  }
  if (observer_ != nullptr) observer_->on_commit(commit);
  if (!whole_steps() && floor_ != ledger_.floor()) {
    floor_ = ledger_.floor();
    try_open_barrier();
  }
}

// Slices of a step in one batch; whole pushes one after the other, in the order they came in.
void Server::apply_due() {
  due_bytes_ = 0;
  for (Assembly& push : due_pushes_) finish_push(std::move(push), 1);
  due_pushes_.clear();
  if (due_slices_.empty()) return;
  if (sync() && setup_.job.clip_norm > 0) {
    if (sums_.all_complete() && !norms_) start_norms();
  } else {
    apply_step(due_slices_, 1.0);
    advance_floor();
  }
  due_slices_.clear();
}

void Server::send_status(const PeerId& peer, int64_t pull, int64_t pushes_through, bool not_ready) {
  Message message;
  wire::Status* status = message.header.mutable_status();
  status->set_pull(pull);
  status->set_pushes_through(pushes_through);
  status->set_not_ready(not_ready);
  outgoing_.push_back({peer, std::move(message)});
}

wire::Stats Server::stats() const {
  wire::Stats out = stats_;
  out.set_updates(updates_);
  out.set_floor(floor_);
  out.set_recorded(log_.size());
  return out;
}

}  // namespace pushpull

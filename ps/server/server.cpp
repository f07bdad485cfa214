#include "ps/server/server.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/job/barriers.h"
#include "common/layout/slice_map.h"
#include "common/net/model_wire.h"
#include "ps/server/aggregation.h"

namespace pushpull {

ServerSetup setup_of(const wire::State& state, uint64_t term_id, uint64_t incarnation, int servers,
                     const Job& job) {
  ServerSetup setup;
  setup.term_id = term_id;
  setup.incarnation = incarnation;
  setup.coordinator = state.coordinator();
  setup.grant_key = state.grant_key();
  setup.rank = state.rank();
  setup.servers = servers;
  setup.job = job;
  setup.table = from_wire(state.tensors());
  setup.start_step = state.start_step();
  setup.end_step = state.end_step();
  setup.total_steps = state.total_steps();
  setup.updates = state.updates();
  setup.shares = state.shares();
  setup.load = state.load();
  setup.replays = state.places().replays();
  return setup;
}

namespace {

SliceMap map_of(const ServerSetup& setup) {
  return {setup.table, setup.job.slice_bytes, setup.servers};
}

// For one worker: an answer and its repetition.
constexpr int64_t kMaxUnsentAnswers = 2;
constexpr int64_t kUnsentSlack = int64_t{1} << 20;

// For one worker: pushes of later steps.
constexpr int64_t kMaxEarlyPushes = 16;

int64_t max_early_bytes(const ServerSetup& setup, const Shard& shard) {
  int64_t elements = 0;
  for (const int slice : shard.slices()) elements += shard.elements(slice);
  // a share has at most log2(micro-batches) parts on either side
  int64_t parts = 1;
  for (int64_t leaves = setup.job.micro_batches(); leaves > 1; leaves /= 2) parts += 2;
  return kMaxEarlyPushes * (kUnsentSlack + parts * elements * static_cast<int64_t>(sizeof(float)));
}

// Returns a shard with initial weights, unless they are loaded later.
Shard shard_of(const ServerSetup& setup) {
  Shard shard(map_of(setup), setup.rank, setup.table, server_optimizer(setup.job),
              setup.engine ? setup.engine : host_engine(setup.memory),
              CodecMap(setup.table, setup.job.codec, setup.job.codec_tensors));
  if (!setup.load) shard.initialise(setup.job.seed);
  shard.set_start(setup.start_step, setup.updates);
  return shard;
}

}  // namespace

AggregationSetup Server::aggregation_setup() {
  AggregationSetup out{setup_.job, shard_, gate_, parallel_, observer_};
  if (!setup_.job.record.empty()) {
    out.record = [this](wire::Applied applied) { log_.add(std::move(applied)); };
  }
  out.incarnation = setup_.incarnation;
  out.rank = setup_.rank;
  out.servers = setup_.servers;
  out.shares = setup_.shares;
  out.total_steps = setup_.total_steps;
  out.updates = setup_.updates;
  return out;
}

PullQueueSetup Server::pull_setup(const SliceMap& map) const {
  PullQueueSetup out;
  out.slices = shard_.slices();
  out.slice_elements = setup_.table.total == 0 ? 0 : map.slice_elements();
  out.servers = setup_.servers;
  // a worker that has just joined may ask for weights from before this replacement
  out.start_step = setup_.replays ? 0 : setup_.start_step;
  out.end_step = setup_.end_step;
  out.encode = setup_.job.pull_codec.kind != CodecKind::kFp32;
  int64_t elements = 0;
  for (const int slice : out.slices) elements += shard_.elements(slice);
  out.max_unsent_bytes =
      kUnsentSlack + kMaxUnsentAnswers * elements * static_cast<int64_t>(sizeof(float));
  return out;
}

Server::Server(ServerSetup setup, TrainingObserver* observer, Parallel* parallel)
    : setup_(std::move(setup)),
      observer_(observer == nullptr ? no_observer_ : *observer),
      parallel_(parallel == nullptr ? serial_ : *parallel),
      shard_(shard_of(setup_)),
      gate_(barriers_of(setup_.job, setup_.start_step, setup_.end_step), shard_, observer_),
      aggregation_(make_aggregation(aggregation_setup())),
      pushes_({setup_.shares, setup_.job.micro_batches(), !setup_.job.record.empty()},
              Grants(setup_.grant_key), gate_.barriers(), shard_, *aggregation_),
      early_(max_early_bytes(setup_, shard_)),
      pulls_(pull_setup(map_of(setup_)), *aggregation_, observer_,
             [this](uint64_t incarnation) { return pushes_.through(incarnation); }),
      transfers_(setup_.load, setup_.updates, shard_, gate_, *aggregation_) {}

Checked Server::on_data(const PeerId& peer, Message message) {
  Checked refusal = take(peer, std::move(message));
  work();
  return refusal;
}

void Server::work() {
  bool opened = aggregation_->apply_due();
  while (take_early()) opened = aggregation_->apply_due() || opened;
  keep_waiting();
  if (std::exchange(to_answer_, false) || opened) answer_all();
}

// Copies waiting parts into the server's own memory, before their push is acknowledged.
void Server::keep_waiting() {
  if (!shard_.keeps_parts()) return;
  waiting_.clear();
  const auto add = [this](PartialSum& part) {
    if (part.payload.on_device && !part.kept) waiting_.push_back(&part);
  };
  aggregation_->for_waiting(add);
  pushes_.for_waiting(add);
  if (!waiting_.empty()) shard_.keep(waiting_);
}

// Does the same for the payloads of a message. Leaves out those that cannot be slices: the message
// will be refused when its step begins.
void Server::keep(std::vector<Payload>& payloads) {
  const auto is_slice = [this](const Payload& payload) {
    const auto count = static_cast<int64_t>(payload.float_count());
    return std::ranges::any_of(shard_.slices(),
                               [&](int slice) { return shard_.elements(slice) == count; });
  };
  std::vector<PartialSum> parts;
  std::vector<PartialSum*> there;
  for (Payload& payload : payloads) parts.push_back({{}, std::move(payload)});
  for (PartialSum& part : parts) {
    if (part.payload.on_device && is_slice(part.payload)) there.push_back(&part);
  }
  if (!there.empty()) shard_.keep(there);
  for (size_t i = 0; i < parts.size(); ++i) payloads[i] = std::move(parts[i].payload);
}

Checked Server::check_term(const wire::Sender& sender) const {
  if (sender.term_id() == setup_.term_id) return {};
  // does not reveal the term's id, which is secret
  return refused("run", "this run", "another one");
}

Checked Server::take(const PeerId& peer, Message message) {
  const wire::Header& header = message.header;
  switch (header.body_case()) {
    case wire::Header::kExchange:
      return on_exchange(peer, header.exchange(), message.payloads);
    case wire::Header::kReceived:
      return on_received(header.received());
    case wire::Header::kLoad:
      if (Checked refusal = check_term(header.load().sender())) return refusal;
      if (header.load().sender().incarnation() != setup_.coordinator) {
        return refused("load-sender", "the coordinator to load weights", "another process");
      }
      return transfers_.load(peer, header.load(), message.payloads, outbox_);
    case wire::Header::kFetch:
      if (Checked refusal = check_term(header.fetch().sender())) return refusal;
      if (!may_fetch(header.fetch().sender().incarnation())) {
        add_not_ready(outbox_, peer);
        return {};
      }
      return transfers_.fetch(peer, header.fetch(), outbox_);
    case wire::Header::kStore: {
      if (Checked refusal = check_term(header.store().sender())) return refusal;
      if (!keeps(header.store().sender().incarnation(), header.store().slice())) {
        add_not_ready(outbox_, peer);
        return {};
      }
      return transfers_.store(peer, header.store(), message.payloads, outbox_);
    }
    default:
      return refused("message", "a message of the data connection",
                     "type " + std::to_string(header.body_case()));
  }
}

// Workers fetch only in jobs in which they update weights; spares never. A worker that has just
// joined may not be known here yet: it asks again.
bool Server::may_fetch(uint64_t incarnation) const {
  if (incarnation == setup_.coordinator) return true;
  return setup_.job.strategy.traits().workers_update && takes_part(incarnation);
}

bool Server::takes_part(uint64_t incarnation) const {
  const auto member = members_.find(incarnation);
  return member != members_.end() && member->second >= 0;
}

// All-reduce: see wire::Member.
bool Server::keeps(uint64_t incarnation, int slice) const {
  const auto found = keepers_.find(incarnation);
  if (found == keepers_.end() || !takes_part(incarnation)) return false;
  const wire::Member& keeper = found->second;
  const SliceMap& map = shard_.map();
  if (slice < 0 || slice >= map.slices()) return true;  // the transfer is refused
  if (map.stage_of(slice) != keeper.stage()) return false;
  return (slice - map.slices_of_stage(keeper.stage()).lo) % setup_.shares == keeper.share() - 1;
}

Checked Server::on_exchange(const PeerId& peer, const wire::Exchange& exchange,
                            std::vector<Payload>& payloads) {
  if (Checked refusal = check_term(exchange.sender())) return refusal;
  const uint64_t incarnation = exchange.sender().incarnation();
  if (!takes_part(incarnation) || !ready()) {
    add_not_ready(outbox_, peer, exchange.pull().number());
    return {};
  }
  return from_worker(take_exchange(peer, exchange, payloads), incarnation);
}

Checked Server::from_worker(Checked refusal, uint64_t incarnation) const {
  if (!refusal) return refusal;
  return from_member(std::move(refusal), "worker " + std::to_string(members_.at(incarnation)));
}

Checked Server::take_exchange(const PeerId& peer, const wire::Exchange& exchange,
                              std::vector<Payload>& payloads) {
  const uint64_t incarnation = exchange.sender().incarnation();
  const wire::Push& push = exchange.push();
  const wire::Pull& pull = exchange.pull();
  if (exchange.has_pull()) {
    if (Checked refusal = aggregation_->check(pull)) return refusal;
    if (Checked refusal = pulls_.check(incarnation, pull)) return refusal;
  }
  if (exchange.has_push() && is_early(push)) {
    if (Checked refusal = keep_early(peer, exchange, payloads)) return refusal;
  } else if (exchange.has_push()) {
    if (Checked refusal = pushes_.check(incarnation, push, payloads)) return refusal;
    if (aggregation_->puts_off(push)) return {};
    pushes_.take(incarnation, push, payloads);
    if (push.acknowledge() && pushes_.complete(incarnation, push.number())) {
      add_status(outbox_, peer, 0, pushes_.through(incarnation));
    }
  }
  if (exchange.has_pull()) pulls_.take(peer, incarnation, pull);
  to_answer_ = true;
  return {};
}

// Returns true if the push must wait for its step: at a replacement server, or if its stage reads no slice of this
// server, which may then be behind. The rule of all-reduce, in which workers read nothing, takes pushes ahead.
bool Server::is_early(const wire::Push& push) const {
  const StrategyTraits& traits = setup_.job.strategy.traits();
  const bool may_be_ahead = setup_.job.stages > 1 && !traits.workers_update;
  if (!setup_.replays && !may_be_ahead) return false;
  const bool in_steps = setup_.replays || traits.step_versions;
  return !gate_.passed(push.step()) || (in_steps && push.step() > aggregation_->floor());
}

// Keeps the push for a later step. The caller handles the pull in the same message at once. A
// message without a grant must not take the room of the worker that it names, nor the place of a
// genuine one.
Checked Server::keep_early(const PeerId& peer, const wire::Exchange& exchange,
                           std::vector<Payload>& payloads) {
  Checked refusal = pushes_.check_early(exchange.sender().incarnation(), exchange.push());
  if (refusal) return refusal;
  EarlyPushes::Early early{peer, exchange, std::move(payloads)};
  early.exchange.clear_pull();
  if (shard_.keeps_parts()) keep(early.payloads);
  early_.keep(std::move(early));
  return {};
}

// Handles kept pushes whose step has come. Returns true if there were some: updates may be due.
bool Server::take_early() {
  const int64_t floor = aggregation_->floor();
  if (!early_.any_of(floor) || !gate_.passed(floor)) return false;
  for (EarlyPushes::Early& early : early_.take(floor)) {
    const uint64_t incarnation = early.exchange.sender().incarnation();
    if (!takes_part(incarnation)) continue;
    Checked refusal =
        from_worker(take_exchange(early.peer, early.exchange, early.payloads), incarnation);
    if (refusal) dropped_.push_back({early.peer, *std::move(refusal)});
  }
  return true;
}

Checked Server::on_received(const wire::Received& received) {
  if (Checked refusal = check_term(received.sender())) return refusal;
  if (Checked refusal = PullQueue::check(received)) return refusal;
  pulls_.take(received);
  to_answer_ = true;
  return {};
}

void Server::on_state(const wire::State& state) {
  work();  // earlier messages count before members change
  members_.clear();
  keepers_.clear();
  for (const wire::Member& member : state.workers()) {
    members_[member.incarnation()] = member.rank();
    if (member.share() > 0) keepers_[member.incarnation()] = member;
  }
  pushes_.on_members(members_);
  pushes_.on_cuts(state);
  pulls_.on_members(members_);
  aggregation_->on_members(members_);
  const bool released = gate_.on_state(state);
  if (aggregation_->try_open_barrier() || released) answer_all();
}

void Server::on_norm_total(const wire::NormTotal& total) {
  if (!aggregation_->on_norm_total(total)) return;
  work();  // pushes of the next step may be waiting
  answer_all();
}

void Server::on_chosen(const wire::Chosen& chosen) {
  if (aggregation_->on_chosen(chosen)) answer_all();
}

wire::Stats Server::stats() const {
  wire::Stats out;
  out.set_bytes_pushed(pushes_.bytes());
  out.set_bytes_pulled(pulls_.bytes());
  out.set_clock_gap_max(pulls_.clock_gap_max());
  for (const auto& [staleness, updates] : aggregation_->staleness()) {
    (*out.mutable_staleness())[staleness] = updates;
  }
  out.set_updates(aggregation_->updates());
  out.set_floor(aggregation_->floor());
  out.set_recorded(log_.size());
  return out;
}

}  // namespace pushpull

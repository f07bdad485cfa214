#include "worker/exchange/push_pull.h"

#include <algorithm>

#include "common/base/error.h"

namespace pushpull {

namespace {

constexpr int64_t kNotReadyMs = 20;  // the server does not know us yet
// A message that only rings the bell: not so often that ringing costs, not so late that the server
// has nothing to do meanwhile.
constexpr size_t kBellBytes = size_t{4} << 20;
constexpr int kLeastRepeats = 3;  // before silence counts: we may have been stopped ourselves

}  // namespace

PushPull::PushPull(PushPullSetup setup)
    : setup_(std::move(setup)),
      map_(setup_.total_elements, setup_.job.slice_bytes, setup_.servers),
      links_(static_cast<size_t>(setup_.servers)),
      weights_(map_, setup_.job.pull_codec.kind == CodecKind::kBf16, setup_.memory,
               setup_.side_by_side) {
  for (int server = 0; server < setup_.servers; ++server) {
    ServerLink& link = links_[static_cast<size_t>(server)];
    link.slices = map_.slices_of(server);
    link.lanes.resize(static_cast<size_t>(lanes(server)));
  }
}

std::vector<int64_t> PushPull::read_versions() const {
  std::vector<int64_t> out;
  for (const ServerLink& link : links_) out.push_back(link.read_version);
  return out;
}

void PushPull::share_memory(int server, bool shared, bool on_device) {
  ServerLink& link = links_[static_cast<size_t>(server)];
  // narrow weights are made for the wire
  link.in_place = shared && setup_.job.pull_codec == Codec{};
  // those of several servers are put together, or mapped side by side, by the host
  link.on_device = link.in_place && on_device && map_.servers() == 1;
  link.reads_gradients = link.reads_gradients || shared;
}

// ---- what to do next ----

void PushPull::on_state(const wire::State& state, int64_t /*now_ms*/) {
  if (state.version() <= state_version_) return;
  state_version_ = state.version();
  std::vector<ShareWork> shares;
  bool grown = false;
  for (const wire::Share& assigned : state.assigned()) {
    const auto known = std::find_if(shares_.begin(), shares_.end(), [&](const ShareWork& share) {
      return share.index == assigned.index();
    });
    const Range range{assigned.lo(), assigned.hi()};
    if (known != shares_.end() && known->range == range) {
      shares.push_back(*known);
      continue;
    }
    const bool fits = assigned.index() >= 0 && assigned.index() < setup_.shares && range.lo >= 0 &&
                      (range.lo < range.hi || (backup() && range == Range{})) &&
                      range.hi <= setup_.job.micro_batches() && assigned.from_step() >= 0;
    if (!fits) throw Error(ErrorCode::kProtocol, "[state] the coordinator has assigned no share");
    ShareWork share;
    share.range = range;
    share.index = assigned.index();
    share.evaluated_through = assigned.from_step();
    // in lockstep its step is the one whose weights are here: nobody can be further without this
    // share, and where somebody can, the servers will say so
    share.clock = lockstep() ? clock_ : assigned.from_step();
    shares.push_back(share);
    grown = true;
  }
  shares_ = std::move(shares);
  // what is waited for may wait for the new share: compute that first, then ask again
  const bool locating = pull_.latest() && (!backup() || clock_ < 0);
  if (grown && pulling_ && !locating) {
    pulling_ = false;
    // By asking for others we have let go of weights that lie with the server. In sync and local:H
    // it cannot do without them as long as anybody computes on them.
    if (weights_.current_in_place() && !(lockstep() && !backup())) clock_ = -1;
  }
}

PushPull::ShareWork* PushPull::next_share() {
  const int64_t end = setup_.barriers.end_step;
  ShareWork* best = nullptr;
  for (ShareWork& share : shares_) {
    if (share.clock > end || (share.clock == end && share.evaluated)) continue;
    if (best == nullptr || share.clock < best->clock) best = &share;
  }
  return best;
}

std::optional<Task> PushPull::wanted() const {
  if (pool()) {
    if (leases_.empty()) return std::nullopt;
    const wire::Lease& lease = leases_.front();
    return Task{lease.evaluate() ? Task::kEvaluate : Task::kCompute,
                lease.step(),
                {lease.lo(), lease.hi()}};
  }
  const ShareWork* share = const_cast<PushPull*>(this)->next_share();
  if (share == nullptr) return std::nullopt;
  if (setup_.barriers.evaluation_due(share->clock) && !share->evaluated) {
    return Task{Task::kEvaluate, share->clock, chunks_of(*share)};
  }
  const int64_t steps = setup_.barriers.round_end(share->clock) - share->clock;
  return Task{Task::kCompute, share->clock, share->range, steps};
}

Range PushPull::chunks_of(const ShareWork& share) const {
  return {share.index * setup_.chunks / setup_.shares,
          (share.index + 1) * setup_.chunks / setup_.shares};
}

std::optional<Task> PushPull::upcoming() const {
  if (pool()) {
    if (leases_.size() < 2 || leases_[1].evaluate()) return std::nullopt;
    return Task{Task::kCompute, leases_[1].step(), {leases_[1].lo(), leases_[1].hi()}};
  }
  if (shares_.empty()) return std::nullopt;
  if (backup()) return Task{Task::kCompute, clock_ + 1, shares_.front().range};
  const ShareWork* first = const_cast<PushPull*>(this)->next_share();
  if (first == nullptr) return std::nullopt;
  Task task{Task::kCompute, setup_.barriers.round_end(first->clock), first->range};
  for (const ShareWork& share : shares_) {
    if (&share != first && share.clock < task.step)
      task = {Task::kCompute, share.clock, share.range};
  }
  if (task.step >= setup_.barriers.end_step) return std::nullopt;
  return task;
}

bool PushPull::weights_fit(const Task& task) const {
  if (clock_ < 0) return false;
  if (lockstep()) return clock_ == task.step;
  if (task.kind == Task::kEvaluate) return at_barrier_ && clock_ == task.step;
  if (pool()) return fresh_ && clock_ >= setup_.barriers.last(task.step);
  // a pull between two pushes, also of another share, see finish_if_complete
  return fresh_ && clock_ >= task.step;
}

Task PushPull::next(int64_t now_ms) {
  if (pulling_ || waits_for_lease_) return {};
  if (backup()) return next_of_backup(now_ms);
  if (lockstep() && clock_ < 0) {
    // where the run is: the servers know
    if (!shares_.empty()) start_pull(0, true, false, now_ms);
    return {};
  }
  const std::optional<Task> task = wanted();
  if (!task) {
    if (pool()) {
      start_lease_wait(now_ms);
      return {};
    }
    return shares_.empty() ? Task{} : Task{Task::kDone, setup_.barriers.end_step, {}};
  }
  if (weights_fit(*task)) return *task;
  start_pull(task->step, false, task->kind == Task::kEvaluate, now_ms);
  return {};
}

std::string PushPull::waiting_for() const {
  if (waits_for_lease_) return "a lease of server 0";
  if (!pulling_) return shares_.empty() && !pool() ? "a share (this worker is a spare)" : "nothing";
  std::string servers;
  for (size_t i = 0; i < links_.size(); ++i) {
    if (links_[i].missing == 0) continue;
    servers += (servers.empty() ? "" : ", ") + std::to_string(i);
  }
  return "weights of step " + std::to_string(pull_.clock()) + " of server " + servers;
}

// ---- pull ----

void PushPull::start_pull(int64_t clock, bool latest, bool barrier, int64_t now_ms) {
  pulling_ = true;
  pull_.set_number(pull_.number() + 1);
  pull_.set_clock(clock);
  pull_.set_latest(latest);
  pull_.set_barrier(barrier);
  pull_.set_lease_only(false);
  weights_.expect();
  for (int server = 0; server < setup_.servers; ++server) {
    ServerLink& link = links_[static_cast<size_t>(server)];
    link.missing = static_cast<int>(link.slices.size());
    link.coming_version = -1;
    link.coming_at_barrier = barrier;
    link.asked = 0;
    link.pushed_at = 0;
    for (Lane& lane : link.lanes) lane.heard = 0;
    if (link.missing > 0) send_pull(server, false, now_ms);
  }
}

void PushPull::start_lease_wait(int64_t now_ms) {
  waits_for_lease_ = true;
  pull_.set_number(pull_.number() + 1);
  pull_.set_latest(false);
  pull_.set_barrier(false);
  pull_.set_lease_only(true);
  // the others are only asked what they have of our pushes
  for (int server = 0; server < setup_.servers; ++server) {
    ServerLink& link = links_[static_cast<size_t>(server)];
    link.asked = 0;
    link.pushed_at = 0;
    for (Lane& lane : link.lanes) lane.heard = 0;
    if (server == 0 || !link.unacknowledged.empty()) send_pull(server, false, now_ms);
  }
}

bool PushPull::on_message(int server, const Message& message, int64_t now_ms) {
  if (server < 0 || server >= setup_.servers) return false;
  ServerLink& link = links_[static_cast<size_t>(server)];
  if (message.header.has_weights()) {
    const bool asked_again = link.repeats > 0;
    link.heard_ms = now_ms;
    link.repeats = 0;
    const int missing = link.missing;
    take_weights(server, message.header.weights(), message.payloads);
    if (pulling_ && message.header.weights().pull() == pull_.number()) {
      link.repeat_ms = now_ms + kPullRepeatMs;  // the rest of the answer may be under way
      check_pushes(server, asked_again, now_ms);
      if (asked_again && link.missing == missing) give_up_locating(link);
    }
    finish_if_complete(now_ms);
    return true;
  }
  if (!message.header.has_status()) return false;
  const wire::Status& status = message.header.status();
  link.heard_ms = now_ms;
  link.repeats = 0;
  if (status.not_ready()) {
    link.repeat_ms = std::min(link.repeat_ms, now_ms + kNotReadyMs);
    link.not_ready = true;
    return true;
  }
  acknowledge(link, status.pushes_through());
  take_leases(status.leases());
  if (waits_for_lease_ && !leases_.empty()) {
    waits_for_lease_ = false;
    link.asked_ms = -1;
  }
  const bool current = status.pull() == pull_.number() && (pulling_ || waits_for_lease_);
  if (current && status.lane() >= 0 && status.lane() < std::ssize(link.lanes)) {
    int& heard = link.lanes[static_cast<size_t>(status.lane())].heard;
    heard = std::max(heard, status.asked());
  }
  if (current && push_is_lost(link)) repeat_pushes(server);
  if (current) give_up_locating(link);
  finish_if_complete(now_ms);
  return true;
}

// In lockstep a newcomer, and in backup everybody, asks for whatever there is, then for the least
// version of that everywhere. A server that has nothing new of it when asked again has gone on
// meanwhile: start over.
void PushPull::give_up_locating(const ServerLink& link) {
  if ((backup() || clock_ < 0) && wants_exact_version() && link.missing > 0) pulling_ = false;
}

// A pull ends when all weights are here and all pushes have arrived: so at most one push of a share
// or lease is under way when a worker is lost.
void PushPull::finish_if_complete(int64_t now_ms) {
  if (pulling_ && !pushing_ && std::all_of(links_.begin(), links_.end(), &PushPull::settled)) {
    finish_pull(now_ms);
  }
}

void PushPull::take_weights(int server, const wire::Weights& weights,
                            const std::vector<Payload>& payloads) {
  ServerLink& link = links_[static_cast<size_t>(server)];
  acknowledge(link, weights.pushes_through());
  take_leases(weights.leases());
  if (!pulling_ || weights.pull() != pull_.number()) return;
  for (int i = 0; i < weights.slices_size(); ++i) {
    const wire::SliceVersion& entry = weights.slices(i);
    if (entry.slice() < 0 || entry.slice() >= map_.slices()) continue;
    if (map_.server_of(entry.slice()) != server || entry.version() < 0) continue;
    const Payload& payload = payloads[static_cast<size_t>(i)];
    if (!weights_.fits(entry.slice(), payload)) continue;
    if (!lockstep() && !one_version(link, entry.version())) continue;
    if (weights_.has(entry.slice())) continue;
    if (wants_exact_version() && entry.version() != pull_.clock()) continue;
    if (!weights_.place(entry.slice(), entry.version(), payload, link.asked_in_place)) {
      // They are not in one piece. Whatever versions there are may lie in two generations; else the
      // server shares memory no more, or had none for a generation. From here on such are copied,
      // those of a device by the server.
      if (pull_.latest()) {
        latest_lies_apart_ = true;
      } else if (link.asked_on_device) {
        link.on_device = false;
      } else {
        link.in_place = false;
      }
      pulling_ = false;
      return;
    }
    pull_answered_ = true;
    link.coming_at_barrier = link.coming_at_barrier && weights.at_barrier();
    --link.missing;
  }
  if (link.missing == 0) link.asked_ms = -1;
  count_received(server, weights, payloads);
}

// async, ssp: a push must be able to say what it was computed on, so all slices of a server are of
// one version. Where the answer to a repeated pull brings a newer one than what was not lost of the
// answer before, that is forgotten. False: the entry is of no use.
bool PushPull::one_version(ServerLink& link, int64_t version) {
  if (version == link.coming_version) return true;
  // complete, or overtaken on its way
  if (link.missing == 0 || version < link.coming_version) return false;
  for (const int slice : link.slices) weights_.forget(slice);
  link.missing = static_cast<int>(link.slices.size());
  link.coming_version = version;
  link.coming_at_barrier = pull_.barrier();
  return true;
}

void PushPull::finish_pull(int64_t now_ms) {
  pulling_ = false;
  const int64_t least = weights_.least_version();
  const bool one_version = least == weights_.most_version();
  if (lockstep() && !one_version && !(backup() && pull_.barrier())) {
    // some servers are a step ahead; they still have the version before
    start_pull(least, false, false, now_ms);
    return;
  }
  weights_.take_over();
  fresh_ = true;
  if (lockstep()) forget_read(least);
  if (backup() && pull_.barrier()) return finish_barrier_pull();
  if (!lockstep()) {
    clock_ = pull_.clock();
    at_barrier_ = came_at_barrier();
    for (ServerLink& link : links_) {
      if (!link.slices.empty()) link.read_version = link.coming_version;
    }
    // Some server is past this barrier, so the share's worker before us has been, which evaluates
    // first: only its last push has not reached all servers.
    for (ShareWork& share : shares_) {
      if (pull_.barrier() && !at_barrier_ && share.clock == clock_) share.evaluated = true;
    }
    return;
  }
  clock_ = least;
  newest_ = std::max(newest_, clock_);
  for (ServerLink& link : links_) link.read_version = clock_;
  for (ShareWork& share : shares_) {
    if (share.clock < 0) share.clock = clock_;
  }
}

void PushPull::take_leases(const google::protobuf::RepeatedPtrField<wire::Lease>& leases) {
  for (const wire::Lease& lease : leases) {
    if (lease.number() <= newest_lease_ || !lease_fits(lease)) continue;
    newest_lease_ = lease.number();
    leases_.push_back(lease);
  }
}

bool PushPull::lease_fits(const wire::Lease& lease) const {
  const Barriers& barriers = setup_.barriers;
  const int64_t most = lease.evaluate() ? setup_.chunks : setup_.job.micro_batches();
  return lease.lo() >= 0 && lease.lo() < lease.hi() && lease.hi() <= most &&
         lease.step() >= barriers.start_step && lease.step() <= barriers.end_step;
}

// ---- push ----

std::vector<Range> PushPull::nodes(Range range) const {
  if (!sync()) return {range};
  return maximal_subtrees(range, setup_.job.micro_batches());
}

void PushPull::begin_push(int64_t step, Range range) {
  PP_ASSERT(!pulling_);
  push_step_ = step;
  push_range_ = range;
  push_number_ = next_push_++;
  push_nodes_ = static_cast<int>(nodes(range).size());
  pushing_ = true;
  for (ServerLink& link : links_) {
    if (!link.slices.empty()) link.unacknowledged.push_back({push_number_, step, {}});
  }
}

void PushPull::add_part(int slice, Range node, Payload payload) {
  const int server = map_.server_of(slice);
  ServerLink& link = links_[static_cast<size_t>(server)];
  Lane& lane = link.lanes[static_cast<size_t>(lane_of(slice))];
  // the last part waits for end_push, so that the last message is never empty
  const size_t most = link.in_place ? std::max(kBellBytes, setup_.flush_bytes) : setup_.flush_bytes;
  if (lane.pending_bytes >= most) {
    pull_while_pushing();
    flush(server, lane_of(slice));
  }
  if (!lane.pending.header.has_exchange()) {
    lane.pending = exchange_message();
    wire::Push* push = lane.pending.header.mutable_exchange()->mutable_push();
    push->set_number(push_number_);
    push->set_step(push_step_);
    push->set_lo(static_cast<int32_t>(push_range_.lo));
    push->set_hi(static_cast<int32_t>(push_range_.hi));
    push->set_parts_total(static_cast<int32_t>(link.slices.size()) * push_nodes_);
    for (const ServerLink& other : links_) push->add_read_versions(other.read_version);
    push->set_steps(static_cast<int32_t>(setup_.barriers.round_end(push_step_) - push_step_));
    push->set_acknowledge(setup_.acknowledge);
  }
  wire::Part* part = lane.pending.header.mutable_exchange()->mutable_push()->add_parts();
  part->set_slice(slice);
  part->set_lo(static_cast<int32_t>(node.lo));
  part->set_hi(static_cast<int32_t>(node.hi));
  lane.pending_bytes += payload.bytes.size();
  lane.pending.payloads.push_back(std::move(payload));
}

void PushPull::end_push(const std::vector<float>& losses, double squares, int64_t now_ms,
                        const std::string& data_hash) {
  pull_answered_ = false;
  pushing_ = false;
  for (size_t server = 0; server < links_.size(); ++server) {
    ServerLink& link = links_[server];
    if (link.slices.empty()) continue;
    // no push is complete without the first lane's last message
    Message& last = link.lanes[0].pending;
    PP_ASSERT(last.header.has_exchange());
    wire::Push* push = last.header.mutable_exchange()->mutable_push();
    push->set_squares(squares);
    if (server != 0) continue;
    push->mutable_losses()->Assign(losses.begin(), losses.end());
    push->set_data_hash(data_hash);
  }
  fresh_ = false;
  if (pool()) {
    leases_.pop_front();
  } else {
    ShareWork* share = backup() ? backup_share() : next_share();
    PP_ASSERT(share != nullptr && share->range == push_range_);
    PP_ASSERT(backup() ? clock_ == push_step_ : share->clock == push_step_);
    share->clock = setup_.barriers.round_end(push_step_);
    share->evaluated = false;
  }
  if (!setup_.acknowledge) next(now_ms);  // starts the pull for what comes next, which rides along
  for (int server = 0; server < setup_.servers; ++server) {
    const std::vector<Lane>& lanes = links_[static_cast<size_t>(server)].lanes;
    for (size_t i = 0; i < lanes.size(); ++i) {
      if (lanes[i].pending.header.has_exchange()) flush(server, static_cast<int>(i));
    }
    // a pull that began with the push is waited for from here on
    if (pulling_) {
      links_[static_cast<size_t>(server)].heard_ms = now_ms;
      links_[static_cast<size_t>(server)].repeat_ms = now_ms + kPullRepeatMs;
    }
  }
  finish_if_complete(now_ms);
}

void PushPull::finish_evaluation() {
  if (pool()) {
    leases_.pop_front();
    fresh_ = false;  // the barrier's weights are old by now
    return;
  }
  if (backup()) return finish_backup_evaluation();
  next_share()->evaluated = true;
}

// ---- time ----

void PushPull::on_tick(int64_t now_ms) {
  if (pushing_) return;  // waits for nobody, and what it has pushed may still be in our queues
  const auto timeout_ms = static_cast<int64_t>(setup_.job.heartbeat_timeout_s * 1000);
  for (int server = 0; server < setup_.servers; ++server) {
    ServerLink& link = links_[static_cast<size_t>(server)];
    const bool waits = (pulling_ && !settled(link)) ||
                       (waits_for_lease_ && (server == 0 || !link.unacknowledged.empty()));
    if (!waits || now_ms < link.repeat_ms) continue;
    if (link.repeats >= kLeastRepeats && now_ms - link.heard_ms > timeout_ms) {
      throw Error(ErrorCode::kUnreachable, "[pull] server " + std::to_string(server) +
                                               " has not answered for " +
                                               std::to_string((now_ms - link.heard_ms) / 1000) +
                                               " s, waiting for " + waiting_for());
    }
    if (!link.not_ready) ++link.repeats;
    link.not_ready = false;
    send_pull(server, true, now_ms);
  }
}

}  // namespace pushpull

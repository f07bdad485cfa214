// Server: pulls. A worker may have several connections to this server, lanes, of which each brings
// every n-th slice. A pull comes once on each, and is answered there, lowest slice first: in the
// order in which forward needs them. What ZeroMQ has been given can no longer be overtaken, so a
// pull may say how much of its weights may be under way at once.
#include <algorithm>
#include <utility>

#include "ps/server/server.h"

namespace pushpull {

namespace {

// Of weights in one message, so that the worker takes in the first ones while others are under way.
constexpr size_t kAnswerBytes = size_t{1} << 20;
constexpr size_t kMostHeld = 64;  // generations for a worker that repeats one pull
constexpr int64_t kMostReceived = int64_t{1} << 50;  // so that no sum can overflow
constexpr int kMaxLanes = 16;                        // as many as the key `connections` allows

Message weights_message(const wire::Pull& pull, int64_t through, int64_t version) {
  Message message;
  wire::Weights* weights = message.header.mutable_weights();
  weights->set_pull(pull.number());
  weights->set_pushes_through(through);
  weights->set_version(version);
  weights->set_lane(pull.lane());
  return message;
}

int lanes_of(const wire::Pull& pull) { return std::max(1, pull.lanes()); }

}  // namespace

bool Server::pull_fits(const Worker& worker, const wire::Pull& pull) const {
  if (pull.number() < 1 || pull.window_bytes() < 0) return false;
  if (pull.asked() < 0 || pull.heard() < 0 || pull.received_bytes() < 0) return false;
  if (pull.lanes() < 0 || pull.lanes() > kMaxLanes) return false;
  if (pull.lane() < 0 || pull.lane() >= lanes_of(pull)) return false;
  // all lanes ask the same
  if (pull.number() == worker.pull_number && !worker.pulls.empty()) {
    const wire::Pull& other = worker.pulls.begin()->second.pull;
    if (lanes_of(other) != lanes_of(pull) || other.lease_only() != pull.lease_only()) return false;
  }
  if (pull.lease_only()) return pull.lane() == 0;  // the clock means nothing there
  if (pull.latest()) return pull.clock() >= 0 && pull.clock() <= setup_.barriers.end_step;
  return pull.clock() >= setup_.barriers.start_step && pull.clock() <= setup_.barriers.end_step;
}

void Server::take_pull(const PeerId& peer, Worker& worker, const wire::Pull& pull) {
  if (pull.number() < worker.pull_number) return;  // an older one, overtaken
  if (pull.number() > worker.pull_number) {
    worker.pulls.clear();
    // a worker asks for other weights once it has done with those that it reads in place
    if (!pull.lease_only()) worker.in_place.clear();
  }
  worker.pull_number = pull.number();
  const auto known = worker.pulls.find(pull.lane());
  const bool repeated = known != worker.pulls.end();
  if (repeated && goes_on(pull) && known->second.peer == peer) {
    return go_on(known->second, pull);
  }
  PendingPull& pending = worker.pulls[pull.lane()];
  pending = {};
  pending.peer = peer;
  pending.pull = pull;
  pending.open = true;
  if (goes_on(pull)) {
    pending.received_bytes = std::min(pull.received_bytes(), kMostReceived);
    pending.sent_bytes = pending.received_bytes;
  }
  if (!pull.lease_only()) {
    const size_t slices = shard_.slices().size();
    pending.unsent.reserve(slices);
    for (auto i = static_cast<size_t>(pull.lane()); i < slices;
         i += static_cast<size_t>(lanes_of(pull))) {
      pending.unsent.insert(i);
    }
  }
  // the answer may have been lost, or it is not time yet: then the worker learns what has arrived
  pending.tell = repeated || (pull.lane() == 0 && is_past(pull));
}

// Repeated on the same connection, which keeps the order: what was sent before we last told the
// worker how far we are has arrived if it has heard that, and what is missing of it is lost. All
// else may be under way over a slow link, and would only be sent twice.
void Server::go_on(PendingPull& pending, const wire::Pull& pull) {
  pending.tell = true;
  if (pull.asked() < pending.pull.asked()) return;
  pending.pull = pull;
  pending.received_bytes =
      std::clamp(pull.received_bytes(), pending.received_bytes, pending.sent_bytes);
  if (pending.told == 0 || pull.heard() < pending.told) return;
  pending.told = 0;
  // what was sent before has been counted by the worker, or will never be
  const int64_t since = std::max<int64_t>(0, pending.sent_bytes - pending.sent_when_told);
  pending.sent_bytes = pending.received_bytes + since;
  for (const int slice : pull.missing()) {
    if (slice < 0 || slice >= map_.slices() || !pending.settled.contains(place(slice))) continue;
    if (shard_.slices()[place(slice)] != slice) continue;  // another server's
    pending.settled.erase(place(slice));
    if (pending.unsent.insert(place(slice))) pending.open = true;
  }
}

// How far we are, where there was nothing to send.
void Server::tell(Worker& worker, PendingPull& pending) {
  const wire::Pull& pull = pending.pull;
  send_status(pending.peer, pull.number(), worker.pushes.through(), false);
  wire::Status* status = outgoing_.back().message.header.mutable_status();
  status->set_lane(pull.lane());
  status->set_asked(pull.asked());
  if (pending.told != 0) return;  // it may take longer to be heard than until the next question
  pending.told = pull.asked();
  pending.sent_when_told = pending.sent_bytes;
  pending.settled = {};
  for (auto i = static_cast<size_t>(pull.lane()); i < shard_.slices().size();
       i += static_cast<size_t>(lanes_of(pull))) {
    if (!pending.unsent.contains(i)) pending.settled.insert(i);
  }
}

// What it says only decides when more is sent: a wrong number harms nobody but its sender.
bool Server::on_received(const wire::Received& received) {
  if (received.sender().run() != setup_.run) return false;
  if (received.bytes() < 0 || received.lane() < 0 || received.lane() >= kMaxLanes) return false;
  const auto found = workers_.find(received.sender().incarnation());
  if (found == workers_.end() || found->second.pull_number != received.pull()) return true;
  const auto lane = found->second.pulls.find(received.lane());
  if (lane == found->second.pulls.end()) return true;
  PendingPull& pending = lane->second;
  pending.received_bytes = std::clamp(received.bytes(), pending.received_bytes, pending.sent_bytes);
  to_answer_ = true;
  return true;
}

// Answered with whatever version there is. In sync and local:H a barrier's weights are those of its
// step, as any other's.
bool Server::any_version(const wire::Pull& pull) const {
  return !lockstep() || pull.latest() || (pull.barrier() && backup());
}

bool Server::may_answer(const wire::Pull& pull) const {
  // nor may `latest` get past a barrier whose snapshot is still to come: the push that follows
  // could be all that the next step lacks
  if (pull.latest() && backup()) return newest_version() >= pull.clock();
  if (pull.latest()) return open_barrier_ >= setup_.barriers.last(floor_);
  if (!passes_barrier(pull.clock())) return false;
  // answered slice by slice
  if (lockstep()) return true;
  return floor_ >= needed_floor(setup_.job.strategy, setup_.barriers, pull.clock());
}

std::optional<std::pair<Payload, int64_t>> Server::slice_for(const wire::Pull& pull,
                                                             int slice) const {
  if (exactly_at_barrier(pull)) {
    return std::pair{at_barrier_.weights.at(slice), at_barrier_.updates};
  }
  if (!lockstep()) return std::pair{shard_.weights(slice), updates_};
  const int64_t version = shard_.version(slice);
  const bool any = pull.latest() || (pull.barrier() && backup());
  const int64_t wanted = !any ? pull.clock() : backup() ? newest_version() : version;
  if (version == wanted) return std::pair{shard_.weights(slice), version};
  if (shard_.previous(slice).owner && shard_.previous_version(slice) == wanted) {
    return std::pair{shard_.previous(slice), wanted};
  }
  return std::nullopt;
}

// Most slices lie in one buffer.
void Server::hold_in_place(Worker& worker, const Payload& weights) {
  if (worker.in_place.empty() || worker.in_place.back() != weights.owner) {
    worker.in_place.push_back(weights.owner);
    // answers that were lost long ago; a stranger must not make us hold without end
    if (worker.in_place.size() > kMostHeld) worker.in_place.erase(worker.in_place.begin());
  }
}

// What is evaluated has all its bits; workers round by themselves what they then compute on.
bool Server::goes_narrow(const wire::Pull& pull, int64_t version) const {
  if (setup_.job.pull_codec.kind == CodecKind::kFp32 || pull.barrier()) return false;
  return !lockstep() || !setup_.barriers.evaluation_due(version);
}

void Server::answer(uint64_t incarnation, Worker& worker) {
  if (worker.pulls.empty()) return;
  const wire::Pull& pull = worker.pulls.begin()->second.pull;
  if (pull.lease_only()) return answer_with_leases(incarnation, worker);
  if (!may_answer(pull)) return;
  // weights of one version on all lanes, so at one time
  const auto open = std::count_if(worker.pulls.begin(), worker.pulls.end(),
                                  [](const auto& lane) { return lane.second.open; });
  if (any_version(pull) && !goes_on(pull) && open < lanes_of(pull)) return;
  for (auto& [lane, pending] : worker.pulls) {
    if (pending.open) answer_lane(incarnation, worker, pending);
  }
}

void Server::answer_with_leases(uint64_t incarnation, Worker& worker) {
  PendingPull& pending = worker.pulls.begin()->second;
  if (!pending.open) return;
  Message message;
  wire::Status* status = message.header.mutable_status();
  add_leases(incarnation, status->mutable_leases());
  // what it has already may still be on the way back, or its evaluation be reported elsewhere
  if (std::none_of(status->leases().begin(), status->leases().end(), [&](const wire::Lease& l) {
        return l.number() > pending.pull.newest_lease();
      })) {
    return;
  }
  status->set_pull(pending.pull.number());
  status->set_pushes_through(worker.pushes.through());
  pending.open = false;
  outgoing_.push_back({pending.peer, std::move(message)});
}

// So much is under way that nothing more may be queued. An answer of one version cannot wait: the
// next update would change it.
bool Server::window_is_full(const PendingPull& pending) const {
  const int64_t window = pending.pull.window_bytes();
  return window > 0 && !any_version(pending.pull) &&
         pending.sent_bytes - pending.received_bytes >= window;
}

void Server::answer_lane(uint64_t incarnation, Worker& worker, PendingPull& pending) {
  const auto begin = [&] {
    Message out = weights_message(pending.pull, worker.pushes.through(), updates_);
    out.header.mutable_weights()->set_at_barrier(exactly_at_barrier(pending.pull));
    return out;
  };
  Message message = begin();
  size_t bytes = 0;
  for (const int number : shard_.slices()) {
    if (!pending.unsent.contains(place(number))) continue;
    if (window_is_full(pending)) break;
    auto slice = slice_for(pending.pull, number);
    if (!slice) continue;
    if (bytes >= kAnswerBytes && !pending.pull.in_place()) {
      outgoing_.push_back({pending.peer, std::exchange(message, begin())});
      bytes = 0;
    }
    if (setup_.job.delay_compensation > 0) {
      worker.handed.keep(slice->second, number, slice->first);
    }
    if (goes_narrow(pending.pull, slice->second)) {
      slice->first = narrow_.get(number, slice->second, slice->first);
    }
    bytes += slice->first.bytes.size();
    pending.sent_bytes += static_cast<int64_t>(slice->first.bytes.size());
    wire::SliceVersion* entry = message.header.mutable_weights()->add_slices();
    entry->set_slice(number);
    entry->set_version(slice->second);
    if (pending.pull.in_place()) hold_in_place(worker, slice->first);
    stats_.set_bytes_pulled(stats_.bytes_pulled() +
                            static_cast<int64_t>(slice->first.bytes.size()));
    message.payloads.push_back(std::move(slice->first));
    pending.unsent.erase(place(number));
  }
  if (message.payloads.empty()) return;
  if (pending.unsent.empty()) {
    pending.open = false;
    const int64_t gap = pending.pull.latest() ? 0 : pending.pull.clock() - floor_;
    stats_.set_clock_gap_max(std::max(stats_.clock_gap_max(), gap));
    if (pending.pull.want_lease()) {
      add_leases(incarnation, message.header.mutable_weights()->mutable_leases());
    }
  }
  outgoing_.push_back({pending.peer, std::move(message)});
}

void Server::answer_all() {
  for (auto& [incarnation, worker] : workers_) {
    const size_t before = outgoing_.size();
    answer(incarnation, worker);
    const bool answered = outgoing_.size() != before;
    for (auto& [lane, pending] : worker.pulls) {
      if (std::exchange(pending.tell, false) && !answered) tell(worker, pending);
    }
  }
}

void Server::offer_leases() {
  for (auto& [incarnation, worker] : workers_) {
    if (!worker.pulls.empty() && worker.pulls.begin()->second.pull.lease_only()) {
      answer(incarnation, worker);
    }
  }
}

void Server::add_leases(uint64_t incarnation,
                        google::protobuf::RepeatedPtrField<wire::Lease>* out) {
  if (observer_ == nullptr) return;
  for (wire::Lease& lease : observer_->leases(incarnation)) {
    *out->Add() = std::move(lease);
  }
}

}  // namespace pushpull

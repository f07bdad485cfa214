#include "ps/worker_memory.h"

#include <algorithm>
#include <utility>

#include "common/error.h"

namespace pushpull {

namespace {

constexpr int64_t kMostConnections = 64;

Message refusal(const std::string& why) {
  Message answer;
  answer.header.mutable_attached()->set_text(why);
  return answer;
}

}  // namespace

WorkerMemory::WorkerMemory(const Job& job, uint64_t run, const SliceMap& map,
                           std::function<void(const std::string&)> failed)
    : allowed_(shares_memory(job)), run_(run), map_(map), pool_(std::move(failed)) {}

FloatAllocator WorkerMemory::weights() {
  if (!allowed_) return heap_floats;
  return [this](size_t floats) { return pool_.get(floats); };
}

void WorkerMemory::on_state(const wire::State& state) {
  std::map<uint64_t, Worker> members;
  for (const wire::Member& member : state.workers()) {
    members[member.incarnation()] = std::move(workers_[member.incarnation()]);
  }
  workers_ = std::move(members);
  std::erase_if(peers_, [&](const auto& peer) { return !workers_.contains(peer.second); });
}

// A worker that connects again and again is known by its newest connections only.
void WorkerMemory::remember(const PeerId& peer, uint64_t incarnation) {
  if (peers_.contains(peer)) return;
  const auto of_worker = [&](const auto& known) { return known.second == incarnation; };
  if (std::count_if(peers_.begin(), peers_.end(), of_worker) >= kMostConnections) {
    std::erase_if(peers_, of_worker);
  }
  peers_[peer] = incarnation;
}

Message WorkerMemory::on_attach(const PeerId& peer, const wire::Attach& attach) {
  const auto found = workers_.find(attach.sender().incarnation());
  if (attach.sender().run() != run_ || found == workers_.end()) {
    Message answer;
    answer.header.mutable_status()->set_not_ready(true);
    return answer;
  }
  if (!allowed_) return refusal("the job's transport does not share memory");
  const std::string difference = host_difference(attach.host(), host_identity());
  if (!difference.empty()) return refusal(difference);
  Worker& worker = found->second;
  try {
    PeerMemory memory(most_segment_bytes(map_));
    memory.map(attach.probe());
    if (!probe_) probe_ = pool_.get(1);
    const auto place = pool_.find(std::as_bytes(std::span(probe_.get(), 1)));
    if (!place.segment) {
      probe_.reset();
      return refusal("the server can have no shared memory");
    }
    // asked again: what is mapped stays
    if (!worker.memory) worker.memory.emplace(most_segment_bytes(map_));
    remember(peer, found->first);
    Message answer;
    answer.header.mutable_attached()->set_ok(true);
    *answer.header.mutable_attached()->mutable_probe() = place.segment->description();
    return answer;
  } catch (const Error& e) {
    return refusal(e.what());
  }
}

std::optional<Message> WorkerMemory::on_message(const PeerId& peer, Message& message) {
  if (!message.header.has_exchange()) return std::nullopt;
  wire::Exchange* exchange = message.header.mutable_exchange();
  const auto found = workers_.find(exchange->sender().incarnation());
  const bool attached = exchange->sender().run() == run_ && found != workers_.end() &&
                        found->second.memory.has_value();
  if (!attached) {
    if (exchange->has_pull()) exchange->mutable_pull()->set_in_place(false);
    if (!has_references(message.header)) return std::nullopt;
    return refusal("[shm] the server has not attached this worker");
  }
  Worker& worker = found->second;
  if (exchange->has_pull()) {
    remember(peer, found->first);
    // one that was overtaken by a newer one says nothing about that
    if (exchange->pull().number() >= worker.pull) {
      worker.pull = exchange->pull().number();
      worker.in_place = exchange->pull().in_place();
    }
  }
  try {
    resolve(message, *worker.memory, map_);
  } catch (const Error& e) {
    return refusal(e.what());
  }
  return std::nullopt;
}

void WorkerMemory::on_send(Outgoing& out) const {
  if (!out.message.header.has_weights()) return;
  const auto peer = peers_.find(out.to);
  if (peer == peers_.end()) return;
  const auto worker = workers_.find(peer->second);
  if (worker != workers_.end() && worker->second.in_place) refer(out.message, pool_, map_);
}

}  // namespace pushpull

#include "ps/server/attached_workers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/error.h"
#include "common/direct/direct_door.h"

namespace pushpull {

namespace {

constexpr int64_t kMaxWorkerConnections = 64;

// A connection of a worker's ring: its incarnation and the connection's number. No routing id of
// libzmq is so long.
struct RingPeer {
  uint64_t incarnation = 0;
  uint8_t connection = 0;

  static constexpr size_t kBytes = 9;
  PeerId name() const {
    PeerId out(kBytes, static_cast<char>(connection));
    std::memcpy(out.data(), &incarnation, sizeof incarnation);
    return out;
  }
  static std::optional<RingPeer> of(const PeerId& peer) {
    if (peer.size() != kBytes) return std::nullopt;
    RingPeer out;
    std::memcpy(&out.incarnation, peer.data(), sizeof out.incarnation);
    out.connection = static_cast<uint8_t>(peer.back());
    return out;
  }
};

Message refusal(const std::string& why) {
  Message answer;
  answer.header.mutable_attached()->set_text(why);
  return answer;
}

// Rethrows errors of the device: they are not the worker's fault.
std::string fault_of_peer(const Error& e) {
  if (e.code() == ErrorCode::kDevice) throw e;
  return e.what();
}

std::span<const std::byte> bytes_of(const std::shared_ptr<float[]>& probe) {
  return std::as_bytes(std::span(probe.get(), 1));
}

size_t generation_floats(const SliceMap& map, int server) {
  int64_t sum = 0;
  for (const int slice : map.slices_of(server)) sum += map.elements(slice).size();
  return static_cast<size_t>(sum);
}

}  // namespace

AttachedWorkers::AttachedWorkers(const Job& job, uint64_t term_id, const SliceMap& map,
                                 const std::function<void(const std::string&)>& failed,
                                 std::shared_ptr<device::Device> device, int server)
    : allowed_(shares_memory(job)),
      term_id_(term_id),
      map_(map),
      pool_(failed),
      device_(std::move(device)) {
  try {
    if (allowed_ || allows_direct(job)) rings_ = std::make_unique<Rings>(job.wait);
  } catch (const Error& e) {
    failed(e.what());  // sockets remain
  }
  if (!device_) return;
  if (allowed_) device_pool_ = std::make_unique<DevicePool>(device_, failed);
  FloatAllocator copies = heap_floats;
  if (allowed_) copies = [this](size_t floats) { return pool_.get(floats); };
  copies = device::registered(device_, std::move(copies), [failed](const std::string& why) {
    failed("copies to the host take longer: " + why);
  });
  mapped_ = device::register_mapped(device_, [failed](const std::string& why) {
    failed("copies of workers' gradients to the device take longer: " + why);
  });
  mirror_ =
      std::make_unique<HostMirror>(device_, std::move(copies), generation_floats(map_, server));
}

FloatAllocator AttachedWorkers::weights() {
  if (device_pool_) return [this](size_t floats) { return device_pool_->get(floats); };
  if (device_) return {};
  if (!allowed_) return heap_floats;
  return [this](size_t floats) { return pool_.get(floats); };
}

void AttachedWorkers::on_state(const wire::State& state) {
  std::map<uint64_t, Worker> members;
  for (const wire::Member& member : state.workers()) {
    members[member.incarnation()] = std::move(workers_[member.incarnation()]);
  }
  workers_ = std::move(members);
  std::erase_if(peers_, [&](const auto& peer) { return !workers_.contains(peer.second); });
}

// Forgets the older connections of a worker that connects too often.
void AttachedWorkers::remember(const PeerId& peer, uint64_t incarnation) {
  if (peers_.contains(peer)) return;
  const auto of_worker = [&](const auto& known) { return known.second == incarnation; };
  if (std::count_if(peers_.begin(), peers_.end(), of_worker) >= kMaxWorkerConnections) {
    std::erase_if(peers_, of_worker);
  }
  peers_[peer] = incarnation;
}

Message AttachedWorkers::on_attach(const PeerId& peer, const wire::Attach& attach) {
  const auto found = workers_.find(attach.sender().incarnation());
  if (attach.sender().term_id() != term_id_ || found == workers_.end()) {
    Message answer;
    answer.header.mutable_status()->set_not_ready(true);
    return answer;
  }
  if (!allowed_) return refusal("the job's transport does not share memory");
  if (RingPeer::of(peer)) return refusal("an Attach belongs on a socket");
  const std::string difference = host_difference(attach.host(), host_identity());
  if (!difference.empty()) return refusal(difference);
  Worker& worker = found->second;
  try {
    PeerMemory memory(max_segment_bytes(map_));
    memory.map(attach.probe());
    if (!probe_) probe_ = pool_.get(1);
    const auto place = pool_.find(bytes_of(probe_));
    if (!place.segment) {
      probe_.reset();
      return refusal("the server can have no shared memory");
    }
    // a repeated Attach keeps the mapping
    if (!worker.memory) worker.memory.emplace(max_segment_bytes(map_), mapped_, device_);
    remember(peer, found->first);
    worker.socket = peer;
    Message answer;
    answer.header.mutable_attached()->set_ok(true);
    attach_ring(worker, attach, *answer.header.mutable_attached());
    *answer.header.mutable_attached()->mutable_probe() = place.segment->description();
    if (attach.has_device_probe()) {
      attach_device(worker, attach, *answer.header.mutable_attached());
    }
    return answer;
  } catch (const Error& e) {
    return refusal(fault_of_peer(e));
  }
}

// A worker without a ring uses its socket alone, at less speed: no reason to refuse it.
void AttachedWorkers::attach_ring(Worker& worker, const wire::Attach& attach,
                                  wire::Attached& attached) {
  if (!attach.has_ring() || !rings_) return;
  try {
    if (!worker.ring || !worker.ring->is_open(attach.ring())) {
      auto ring = std::make_unique<RingPair>(*rings_);
      ring->open(attach.ring());
      worker.ring = std::move(ring);
    }
    *attached.mutable_ring() = worker.ring->description();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kProtocol && e.code() != ErrorCode::kFailed) throw;
  }
}

std::optional<std::pair<PeerId, Message>> AttachedWorkers::receive(bool marked) {
  if (!rings_ || !rings_->has_message()) return std::nullopt;
  // each worker in turn
  auto next = workers_.upper_bound(received_from_);
  for (size_t i = 0; i < workers_.size(); ++i, ++next) {
    if (next == workers_.end()) next = workers_.begin();
    auto& [incarnation, worker] = *next;
    if (!worker.ring || (marked && !worker.ring->has_marked())) continue;
    try {
      if (auto received = worker.ring->receive()) {
        received_from_ = incarnation;
        const auto connection = static_cast<uint8_t>(received->connection);
        return std::pair{RingPeer{incarnation, connection}.name(), std::move(received->message)};
      }
    } catch (const Error&) {
      worker.ring.reset();  // the worker repeats over its socket what is not answered
    }
  }
  return std::nullopt;
}

bool AttachedWorkers::send(Outgoing& out) {
  const auto peer = RingPeer::of(out.to);
  if (!peer) return false;
  const auto found = workers_.find(peer->incarnation);
  if (found == workers_.end()) return false;
  const Worker& worker = found->second;
  if (worker.ring && worker.ring->send(peer->connection, out.message)) return true;
  out.to = worker.socket;
  return false;
}

// Answers with the reason if the worker cannot read weights on the device.
void AttachedWorkers::attach_device(Worker& worker, const wire::Attach& attach,
                                    wire::Attached& attached) {
  if (!device_) {
    attached.set_device_text("its weights are in host memory");
    return;
  }
  if (attach.device_probe().device() != device_->id()) {
    attached.set_device_text("its weights are on another GPU, " + device_->name());
    return;
  }
  try {
    PeerMemory memory(max_segment_bytes(map_), {}, device_);
    memory.map(attach.device_probe());
  } catch (const Error& e) {
    attached.set_device_text(fault_of_peer(e));
    return;
  }
  if (!device_probe_) device_probe_ = device_pool_->get(1);
  const auto place = device_pool_->find(bytes_of(device_probe_));
  if (!place.segment) {
    device_probe_.reset();
    attached.set_device_text("others cannot read the memory of its " + device_->name());
    return;
  }
  worker.shares_device = true;
  *attached.mutable_device_probe() = place.segment->description();
}

std::optional<Message> AttachedWorkers::on_message(const PeerId& peer, Message& message) {
  if (!message.header.has_exchange()) return std::nullopt;
  wire::Exchange* exchange = message.header.mutable_exchange();
  const auto found = workers_.find(exchange->sender().incarnation());
  const bool attached = exchange->sender().term_id() == term_id_ && found != workers_.end() &&
                        found->second.memory.has_value();
  if (!attached) {
    if (exchange->has_pull()) exchange->mutable_pull()->set_in_place(false);
    if (!has_references(message.header)) return std::nullopt;
    return refusal("[shm] the server has not attached this worker");
  }
  Worker& worker = found->second;
  if (!RingPeer::of(peer)) worker.socket = peer;
  if (exchange->has_pull()) {
    remember(peer, found->first);
    // an older pull must not change the setting of a newer one
    if (exchange->pull().number() >= worker.pull) {
      worker.pull = exchange->pull().number();
      worker.in_place = exchange->pull().in_place();
      worker.on_device = worker.shares_device && exchange->pull().on_device();
    }
  }
  try {
    resolve(message, *worker.memory, map_);
  } catch (const Error& e) {
    return refusal(fault_of_peer(e));
  }
  return std::nullopt;
}

// Returns the worker that reads this message in place, or null.
const AttachedWorkers::Worker* AttachedWorkers::reader_of(const Outgoing& out) const {
  if (!out.message.header.has_weights()) return nullptr;
  const auto peer = peers_.find(out.to);
  if (peer == peers_.end()) return nullptr;
  const auto worker = workers_.find(peer->second);
  return worker != workers_.end() && worker->second.in_place ? &worker->second : nullptr;
}

void AttachedWorkers::on_send(Outgoing& out) {
  const Worker* reader = reader_of(out);
  const bool on_device = reader != nullptr && reader->on_device;
  if (on_device) refer(out.message, pool_, map_, device_pool_.get());
  if (mirror_) mirror_->bring(out.message.payloads);
  if (reader != nullptr && !on_device) refer(out.message, pool_, map_);
}

}  // namespace pushpull

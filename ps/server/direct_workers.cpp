#include "ps/server/direct_workers.h"

#include <cstring>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/net/address.h"

namespace pushpull {

namespace {

// A connection of a worker: its incarnation, the number of the connection, and a mark. No routing id
// of libzmq is so long, nor the name of a ring's connection.
struct DirectPeer {
  uint64_t incarnation = 0;
  uint8_t connection = 0;

  static constexpr size_t kBytes = 10;
  PeerId name() const {
    PeerId out(kBytes, static_cast<char>(connection));
    std::memcpy(out.data(), &incarnation, sizeof incarnation);
    return out;
  }
  static std::optional<DirectPeer> of(const PeerId& peer) {
    if (peer.size() != kBytes) return std::nullopt;
    DirectPeer out;
    std::memcpy(&out.incarnation, peer.data(), sizeof out.incarnation);
    out.connection = static_cast<uint8_t>(peer.back());
    return out;
  }
};

Message no_offer(const std::string& why) {
  Message answer;
  answer.header.mutable_direct_offer()->set_text(why);
  return answer;
}

}  // namespace

DirectWorkers::DirectWorkers(const Job& job, uint64_t term_id, const std::string& address,
                             const Demand& demand, Rings* rings, Bad bad,
                             DirectDoor::Refused refused)
    : term_id_(term_id),
      address_(address),
      demand_(demand),
      rings_(allows_direct(job) ? rings : nullptr),
      bad_(std::move(bad)),
      refused_(std::move(refused)) {}

void DirectWorkers::on_state(const wire::State& state) {
  std::map<uint64_t, Worker> members;
  for (const wire::Member& member : state.workers()) {
    members[member.incarnation()] = std::move(workers_[member.incarnation()]);
  }
  workers_ = std::move(members);
}

DirectDoor* DirectWorkers::door() {
  if (door_ || !why_no_door_.empty()) return door_ ? &*door_ : nullptr;
  try {
    door_.emplace(address_, demand_, refused_);
    return &*door_;
  } catch (const Error& e) {
    why_no_door_ = e.what();
    bad_({}, *pushpull::refused("direct", why_no_door_));
    return nullptr;
  }
}

Message DirectWorkers::on_ask(const PeerId& peer, const wire::AskDirect& ask, int64_t now_ms) {
  const auto found = workers_.find(ask.sender().incarnation());
  if (ask.sender().term_id() != term_id_ || found == workers_.end()) {
    Message answer;
    answer.header.mutable_status()->set_not_ready(true);
    return answer;
  }
  if (rings_ == nullptr || demand_.proof == Proof::kCurve || DirectPeer::of(peer)) {
    return no_offer("the job's keys allow no direct connection");
  }
  if (std::to_string(ask.port()) != parse_address(address_, "listen").port) {
    return no_offer("it came through another port, so a proxy is between");
  }
  DirectDoor* const door = this->door();
  if (door == nullptr) return no_offer(why_no_door_);
  found->second.socket = peer;
  Message answer;
  answer.header.mutable_direct_offer()->set_port(door->port());
  answer.header.mutable_direct_offer()->set_nonce(door->offer(found->first, now_ms));
  return answer;
}

void DirectWorkers::turn(int64_t now_ms) {
  if (!door_) return;
  for (DirectDoor::Opened& opened : door_->turn(now_ms)) {
    const auto found = workers_.find(opened.incarnation);
    if (found == workers_.end()) continue;  // it has gone meanwhile
    found->second.connection =
        std::make_unique<DirectConnection>(*rings_, std::move(opened.socket));
  }
}

std::optional<std::pair<PeerId, Message>> DirectWorkers::receive() {
  // each worker in turn
  auto next = workers_.upper_bound(received_from_);
  for (size_t i = 0; i < workers_.size(); ++i, ++next) {
    if (next == workers_.end()) next = workers_.begin();
    auto& [incarnation, worker] = *next;
    if (!worker.connection) continue;
    try {
      if (auto received = worker.connection->receive()) {
        received_from_ = incarnation;
        const auto connection = static_cast<uint8_t>(received->connection);
        return std::pair{DirectPeer{incarnation, connection}.name(), std::move(received->message)};
      }
      if (worker.connection->is_over()) worker.connection.reset();
    } catch (const Error& e) {
      bad_(DirectPeer{incarnation, 0}.name(), *pushpull::refused("direct", e.what()));
      worker.connection.reset();  // the worker asks again
    }
  }
  return std::nullopt;
}

bool DirectWorkers::send(Outgoing& out) {
  const auto peer = DirectPeer::of(out.to);
  if (!peer) return false;
  const auto found = workers_.find(peer->incarnation);
  if (found == workers_.end()) return false;
  const Worker& worker = found->second;
  if (worker.connection && worker.connection->send(peer->connection, out.message)) return true;
  out.to = worker.socket;
  return false;
}

}  // namespace pushpull

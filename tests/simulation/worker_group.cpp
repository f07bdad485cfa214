#include "tests/simulation/worker_group.h"

#include <algorithm>
#include <utility>

#include "tests/simulation/worker_node.h"

namespace pushpull::sim {

WorkerGroup::WorkerGroup(Cluster& cluster, WorkerNode& process, PeerInbox& inbox,
                         const GroupSetup& setup)
    : cluster_(cluster), process_(process), inbox_(inbox), term_id_(setup.term_id), parts_(setup) {
  process_.set_group(this);
}

// Connections to workers that stay in the group stay open, as with PeerDealers.
void WorkerGroup::begin(int64_t attempt, std::vector<GroupMember> members) {
  parts_.begin(attempt, members);
  std::vector<Peer> peers;
  for (GroupMember& member : members) {
    const bool self = static_cast<int>(peers.size()) == parts_.stage();
    const auto known = std::ranges::find_if(peers_, [&](const Peer& peer) {
      return peer.dealer >= 0 && peer.who.incarnation == member.incarnation;
    });
    int dealer = -1;
    if (known != peers_.end()) {
      dealer = std::exchange(known->dealer, -1);
    } else if (!self) {
      dealer = cluster_.network().add_dealer(cluster_.peer_router(member.endpoint),
                                             [](const Message& /*nothing comes back*/) {});
      cluster_.network().silence(dealer, silent_until_ms_);
    }
    peers.push_back({std::move(member), dealer});
  }
  close();
  peers_ = std::move(peers);
}

void WorkerGroup::end() {
  parts_.end();
  close();
  peers_.clear();
}

// A member may not know yet that the term is over.
bool WorkerGroup::of_term(const wire::Header& header) const {
  if (header.has_stage_part()) return header.stage_part().sender().term_id() == term_id_;
  if (header.has_stage_ask()) return header.stage_ask().sender().term_id() == term_id_;
  return header.stage_arrived().sender().term_id() == term_id_;
}

void WorkerGroup::exchange(const std::optional<GroupParts::Wait>& wait) {
  send();
  while (!inbox_.empty()) {
    Message message = std::move(inbox_.front());
    inbox_.pop_front();
    const int64_t rejected = parts_.rejected();
    parts_.on_message(message);
    if (parts_.rejected() > rejected && of_term(message.header)) {
      return cluster_.wrong("a worker refused " + message.header.ShortDebugString());
    }
  }
  parts_.on_tick(cluster_.clock().now_ms(), wait);
  send();
}

void WorkerGroup::send() {
  for (ToMember& out : parts_.take_outgoing()) {
    cluster_.network().to_router(peers_.at(static_cast<size_t>(out.stage)).dealer,
                                 std::move(out.message));
  }
}

void WorkerGroup::silence(int64_t until_ms) {
  silent_until_ms_ = std::max(silent_until_ms_, until_ms);
  for (const Peer& peer : peers_) {
    if (peer.dealer >= 0) cluster_.network().silence(peer.dealer, until_ms);
  }
}

void WorkerGroup::close() {
  for (Peer& peer : peers_) {
    if (peer.dealer >= 0) cluster_.network().close(std::exchange(peer.dealer, -1));
  }
}

}  // namespace pushpull::sim

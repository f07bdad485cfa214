#include "tests/simulation/coordinator_node.h"

namespace pushpull::sim {

CoordinatorNode::CoordinatorNode(Cluster& cluster, int control)
    : JobResults(cluster),
      cluster_(cluster),
      data_(cluster),
      driver_(cluster.coordinator_options(), cluster.scenario().start_timeout_s, data_.data(),
              *this, history_of_run(), cluster.stop_options()),
      control_(control) {
  const auto hear = [this](const PeerId& peer, const Message& message) { take(peer, message); };
  if (control_ < 0) {
    control_ = cluster.network().add_router(hear);
  } else {
    cluster.network().restart_router(control_, hear);
  }
  cluster_.watch().began(driver_.coordinator().self_incarnation(), {wire::ROLE_SERVER, 0, ""});
  data_.after_work([this] { turn(); });
  cluster_.clock().after(kServerTickUs, [this] { tick(); });
}

void CoordinatorNode::kill() {
  killed_ = over_ = true;
  data_.close();
}

Now CoordinatorNode::now() const {
  return {cluster_.clock().now_ms(), cluster_.clock().now_ms(), cluster_.clock().now_ms()};
}

// Runs one event of the program and the turn after it.
void CoordinatorNode::happen(const std::function<void()>& event) {
  if (over_) return;
  cluster_.guarded("coordinator", [&] {
    event();
    turn();
  });
}

void CoordinatorNode::take(const PeerId& peer, const Message& message) {
  if (over_) return;
  cluster_.watch().asks(driver_.coordinator(), message);
  happen([&] { driver_.on_message(now(), peer, message); });
  cluster_.watch().asked(driver_.coordinator(), peer, message);
}

void CoordinatorNode::turn() {
  if (over_) return;
  driver_.on_data_taken(now());
  driver_.on_turn(now());
  if (driver_.serves()) data_.send();
  cluster_.watch().members(driver_.coordinator());
  if (!driver_.over()) return;
  over_ = true;
  data_.close();
}

void CoordinatorNode::tick() {
  happen([] {});
  if (!over_) cluster_.clock().after(kServerTickUs, [this] { tick(); });
}

bool CoordinatorNode::send(const PeerId& to, const Message& message) {
  cluster_.watch().answered(to, message);
  return cluster_.network().to_dealer(to, message);
}

void CoordinatorNode::connect_shards(const std::vector<DataPort>& ports) {
  shards_.clear();
  const uint64_t term_id = driver_.coordinator().term_id();
  const int64_t life = ++shard_lives_;
  const auto take = [this, term_id, life](const Message& message) {
    happen([&] {
      // an answer of an earlier term, or on a closed connection
      const bool earlier = driver_.coordinator().term_id() != term_id || life != shard_lives_;
      if (earlier || driver_.on_shard_message(now(), message)) return;
      cluster_.wrong("the shard client refused " + message.header.ShortDebugString());
    });
  };
  for (const DataPort& port : ports) {
    shards_.push_back(cluster_.network().add_dealer(cluster_.data_router(port.endpoint), take));
  }
}

void CoordinatorNode::send_to_shard(int server, const Message& message) {
  cluster_.network().to_router(shards_[static_cast<size_t>(server)], message);
}

}  // namespace pushpull::sim

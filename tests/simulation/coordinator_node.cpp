#include "tests/simulation/coordinator_node.h"

namespace pushpull::sim {

namespace {

constexpr int64_t kTickUs = 10'000;

CoordinatorOptions options_of(Cluster& cluster) {
  CoordinatorOptions options;
  options.job = cluster.scenario().job;
  options.run = cluster.dice().next();
  options.servers = cluster.scenario().servers;
  options.workers = cluster.scenario().workers;
  options.self.incarnation = cluster.dice().next();
  options.self.host = "host";
  options.self.pid = 1000;
  options.self.data_endpoint = endpoint_of(0);
  return options;
}

}  // namespace

CoordinatorNode::CoordinatorNode(Cluster& cluster)
    : cluster_(cluster),
      data_(cluster),
      driver_(options_of(cluster), cluster.scenario().start_timeout_s, data_.data(), *this),
      control_(cluster.network().add_router(
          [this](const PeerId& peer, const Message& message) { take(peer, message); })) {
  cluster_.watch().began(driver_.coordinator().self_incarnation(), {wire::ROLE_SERVER, 0, ""});
  data_.after_work([this] { turn(); });
  cluster_.clock().after(kTickUs, [this] { tick(); });
}

Now CoordinatorNode::now() const { return {cluster_.clock().now_ms(), cluster_.clock().now_ms()}; }

void CoordinatorNode::take(const PeerId& peer, const Message& message) {
  if (over_) return;
  cluster_.guarded("coordinator", [&] {
    const auto& members = driver_.coordinator().members().all();
    const wire::Header& header = message.header;
    const bool stranger =
        header.has_heartbeat() && !members.contains(header.heartbeat().incarnation());
    refused_.clear();
    answered_.clear();
    driver_.on_message(now(), peer, message);
    turn();
    if (stranger && !refused_.contains(peer)) {
      cluster_.wrong("the heartbeat of a process that was given up is not refused");
    }
    // the answer to the one before may be lost
    if (header.has_hello() && !answered_.contains(peer) && !refused_.contains(peer)) {
      cluster_.wrong("a Hello is not answered");
    }
  });
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
  if (over_) return;
  cluster_.guarded("coordinator", [&] { turn(); });
  cluster_.clock().after(kTickUs, [this] { tick(); });
}

// ---- effects ----

bool CoordinatorNode::send(const PeerId& to, const Message& message) {
  if (message.header.has_refused()) refused_.insert(to);
  if (message.header.has_job_text()) answered_.insert(to);
  return cluster_.network().to_dealer(to, message);
}

void CoordinatorNode::connect_shards(const std::vector<std::string>& endpoints) {
  const auto take = [this](const Message& message) {
    if (over_) return;
    cluster_.guarded("shard client", [&] {
      if (!driver_.on_shard_message(now(), message)) {
        cluster_.wrong("the shard client refused " + message.header.ShortDebugString());
      }
      turn();
    });
  };
  for (const std::string& endpoint : endpoints) {
    shards_.push_back(cluster_.network().add_dealer(cluster_.data_router(endpoint), take));
  }
}

void CoordinatorNode::send_to_shard(int server, const Message& message) {
  cluster_.network().to_router(shards_[static_cast<size_t>(server)], message);
}

StartPoint CoordinatorNode::load_start(const Declaration& /*declaration*/) {
  return {cluster_.start_state(), ""};
}

void CoordinatorNode::hash_weights(GatheredState snapshot) {
  const FlatState state = flatten(std::move(snapshot));
  cluster_.start_weights = state.weights;
  keep(state);
}

void CoordinatorNode::write_checkpoint(GatheredState snapshot, CheckpointState /*state*/,
                                       bool /*hash*/) {
  const FlatState state = flatten(std::move(snapshot));
  if (!cluster_.checkpoints.emplace(state.step, state).second) {
    cluster_.wrong("barrier " + std::to_string(state.step) + " was written twice");
  }
  keep(state);
}

void CoordinatorNode::keep(const FlatState& snapshot) {
  const int64_t duration = cluster_.dice().between(0, cluster_.scenario().write_us);
  cluster_.clock().after(duration, [this, step = snapshot.step] {
    cluster_.guarded("coordinator", [&] {
      driver_.on_written(now(), {step, std::to_string(step), nullptr});
      turn();
    });
  });
}

void CoordinatorNode::show_line(const std::string& line) {
  if (line.find("until an earlier checkpoint is written") != std::string::npos) {
    ++cluster_.checkpoint_waits;
  }
  if (line.starts_with("[job] lost ")) ++cluster_.lost_members;
}

void CoordinatorNode::show_moment(const Moment& moment) {
  if (!moment.evaluation) return;
  const Evaluation& evaluation = *moment.evaluation;
  if (!cluster_.evaluations.emplace(evaluation.step, evaluation).second) {
    cluster_.wrong("evaluation " + std::to_string(evaluation.step) + " was shown twice");
  }
}

void CoordinatorNode::write_summary(const Coordinator& /*coordinator*/, Summary summary) {
  if (cluster_.summary) cluster_.wrong("the summary was written twice");
  cluster_.summary = std::move(summary);
}

std::string CoordinatorNode::describe() const {
  const Coordinator& coordinator = driver_.coordinator();
  std::string out = "coordinator: " + wire::Phase_Name(coordinator.phase());
  if (coordinator.phase() == wire::PHASE_FAILED) out += " " + coordinator.failure_text();
  if (over_) return out + ", over";
  out += " " + coordinator.waiting_for();
  if (coordinator.barriers().end_step > 0) {
    const auto& evaluation = coordinator.evaluations().newest();
    out += ", floor " + std::to_string(coordinator.training().floor()) + ", evaluated " +
           std::to_string(evaluation ? evaluation->step : -1) + ", end " +
           std::to_string(coordinator.barriers().end_step);
  }
  if (driver_.writing()) out += ", writing";
  if (driver_.waits_for_shards()) {
    out += ", shard client waits for server " + std::to_string(driver_.slow_shard());
  }
  for (const auto& [incarnation, member] : coordinator.members().all()) {
    out += "\n    member " + member.name() + (member.declared ? " declared" : "");
  }
  return out + "\n  server 0: " + data_.describe();
}

}  // namespace pushpull::sim

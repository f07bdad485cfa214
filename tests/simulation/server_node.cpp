#include "tests/simulation/server_node.h"

#include <csignal>

#include "tests/simulation/describe.h"

namespace pushpull::sim {

ServerNode::ServerNode(Cluster& cluster, int number, bool surplus)
    : cluster_(cluster),
      number_(number),
      surplus_(surplus),
      data_(cluster),
      member_(cluster.join_options(wire::ROLE_SERVER, number), *this),
      incarnation_(member_.incarnation()),
      // a server without heartbeats would end the job, which another test covers
      control_(cluster.network().add_dealer(
          cluster.control_router(), [this](const Message& message) { take(message); },
          !cluster.scenario().servers_lossy)) {
  cluster_.on_control_closed(control_, incarnation_,
                             [this] { member_.on_closed(cluster_.clock().now_ms()); });
  cluster_.watch().began(incarnation_, {wire::ROLE_SERVER, number_, ""});
  const int64_t late_us = cluster_.scenario().servers_late_ms * 1000;
  cluster_.clock().after(late_us + cluster_.dice().between(0, 20'000), [this] { tick(); });
}

void ServerNode::take(const Message& message) {
  if (over_) return;
  cluster_.guarded("server " + std::to_string(number_), [&] {
    member_.on_message(cluster_.clock().now_ms(), message);
    send();
  });
}

void ServerNode::tick() {
  if (over_) return;
  cluster_.guarded("server " + std::to_string(number_), [&] {
    const int64_t now_ms = cluster_.clock().now_ms();
    member_.on_tick(now_ms);
    if (member_.needs_connection(now_ms)) {
      cluster_.watch().connects(incarnation_);
      cluster_.network().open_second(control_);
    }
    send();
  });
  if (over_) return;
  cluster_.watch().lives(incarnation_, member_.joined());
  cluster_.clock().after(kServerTickUs, [this] { tick(); });
}

void ServerNode::send() {
  for (Message& message : member_.take_outgoing()) {
    cluster_.watch().sent(incarnation_, message);
    cluster_.network().to_router(control_, std::move(message));
  }
  if (!member_.end()) return data_.send();
  over_ = true;
  data_.close();
  cluster_.watch().ended(incarnation_, *member_.end(), member_.state().phase());
  check_end();
}

void ServerNode::check_end() {
  const JobEnd& end = *member_.end();
  // the job has all its servers, or is over
  const bool refused = end.code == ErrorCode::kUsage || end.code == ErrorCode::kUnreachable;
  // its predecessor died at the very end, and it has not taken the place
  const bool late = !member_.joined() && end.text.starts_with("[join] the job is over");
  // before the first step, only the coordinator is told to end
  const bool signalled = end.signal != 0 && cluster_.scenario().all_signalled;
  const bool informed =
      end.success || late || signalled || member_.state().phase() == wire::PHASE_FAILED;
  // a server that was given up by mistake is replaced
  const bool given_up = end.code == ErrorCode::kPeerLost;
  if (given_up && !cluster_.scenario().server_losses.empty()) return cluster_.replace_server();
  if (surplus_ ? !refused && !late : !informed && !cluster_.over()) {
    cluster_.wrong("server process " + std::to_string(number_) + " ended: " + end.text);
  }
}

void ServerNode::request_end() {
  if (over_) return;
  cluster_.guarded("server " + std::to_string(number_), [&] {
    member_.on_signal(cluster_.clock().now_ms(), SIGTERM);
    send();
  });
}

void ServerNode::kill() {
  over_ = true;
  data_.close();
  cluster_.network().close(control_);
}

std::string ServerNode::describe() const {
  return "server process " + std::to_string(number_) + " (rank " +
         std::to_string(member_.state().rank()) +
         "): " + (over_ ? "gone" : sim::describe(data_.data().server()));
}

}  // namespace pushpull::sim

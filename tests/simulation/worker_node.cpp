#include "tests/simulation/worker_node.h"

#include <csignal>

#include "tests/simulation/describe.h"

namespace pushpull::sim {

WorkerNode::WorkerNode(Cluster& cluster, int number, const Newcomer& newcomer)
    : WorkerTerms(cluster, *this, number, newcomer),
      cluster_(cluster),
      control_(cluster.network().add_dealer(
          cluster.control_router(),
          [this](const Message& message) { happen([this, message] { take(message); }); })) {
  cluster_.on_control_closed(control_, member_.incarnation(),
                             [this] { happen([this] { member_.on_closed(now_ms()); }); });
  cluster_.watch().began(member_.incarnation(), {wire::ROLE_WORKER, number, newcomer.digest});
  later(cluster_.dice().between(0, 30'000), [this] { tick(); });
}

// A server that does not answer may end the worker. Any other error is a failed check.
bool WorkerNode::ends_with(const Error& error) {
  if (error.code() != ErrorCode::kUnreachable) return false;
  if (!cluster_.scenario().server_losses.empty()) {
    stop_and_wait_for_reason(error);
    return true;
  }
  member_.leave(static_cast<int>(error.code()), error.what());
  end({false, error.code(), error.what(), 0});
  return true;
}

void WorkerNode::request_end() {
  happen([this] {
    member_.on_signal(now_ms(), SIGTERM);
    step();
  });
}

void WorkerNode::kill() {
  mark_ended();
  cluster_.network().close(control_);
  trainer_->close_links();
}

// Ends as worker_program does, after Leave.
void WorkerNode::end(const JobEnd& end) {
  send();
  exit_code_ = end.exit_code();
  mark_ended();
  trainer_->close_links();
  cluster_.watch().ended(member_.incarnation(), end, member_.state().phase());
  if (!end.success && newcomer_.replaced) cluster_.replace_worker();
}

void WorkerNode::send() {
  for (Message& message : member_.take_outgoing()) {
    cluster_.watch().sent(member_.incarnation(), message);
    if (message.header.has_own_weights()) {
      cluster_.givers.emplace(message.header.run(), member_.incarnation());
    }
    cluster_.network().to_router(control_, std::move(message));
  }
}

void WorkerNode::take(const Message& message) {
  const int64_t version = member_.state().version();
  member_.on_message(now_ms(), message);
  take_term();
  step();
  if (!has_ended() && member_.state().version() != version) trainer_->on_news();
}

void WorkerNode::step() {
  member_.on_tick(now_ms());
  if (member_.needs_connection(now_ms())) {
    cluster_.watch().connects(member_.incarnation());
    cluster_.network().open_second(control_);
  }
  send();
  if (!member_.end()) return;
  member_.leave(0, "");
  end(*member_.end());
}

void WorkerNode::tick() {
  step();
  if (has_ended()) return;
  cluster_.watch().lives(member_.incarnation(), member_.joined());
  later(kWorkerTickUs, [this] { tick(); });
  trainer_->turn();  // last: it may throw, and the next turn must already be scheduled
}

void WorkerNode::report(wire::EvalResult result) {
  cluster_.watch().reports(member_.incarnation());
  member_.report(run_, std::move(result));
  member_.on_tick(now_ms());
  send();
}

std::string WorkerNode::describe() const {
  const std::string out = name() + ": ";
  if (exit_code_) return out + "left with " + std::to_string(*exit_code_);
  if (has_ended()) return out + "killed";
  return out + sim::describe(member_) + (member_.joined() ? ", " + trainer_->describe() : "");
}

}  // namespace pushpull::sim

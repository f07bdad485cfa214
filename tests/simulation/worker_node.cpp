#include "tests/simulation/worker_node.h"

#include "tests/simulation/describe.h"

namespace pushpull::sim {

WorkerNode::WorkerNode(Cluster& cluster, int number, const Newcomer& newcomer)
    : Process(cluster, "worker " + std::to_string(number)),
      cluster_(cluster),
      newcomer_(newcomer),
      member_(cluster.join_options(wire::ROLE_WORKER, number), [this] { return trainer_.stats(); }),
      control_(cluster.network().add_dealer(
          cluster.control_router(),
          [this](const Message& message) { happen([this, message] { take(message); }); })),
      trainer_(cluster, *this, number) {
  cluster_.watch().began(member_.incarnation(), {wire::ROLE_WORKER, number, newcomer_.digest});
  later(cluster_.dice().between(0, 30'000), [this] { tick(); });
}

// A server does not answer; all else is wrong.
bool WorkerNode::ends_with(const Error& error) {
  if (error.code() != ErrorCode::kUnreachable) return false;
  member_.leave(static_cast<int>(error.code()), error.what());
  end({false, error.code(), error.what(), 0});
  return true;
}

void WorkerNode::kill() {
  go();
  cluster_.network().close(control_);
  trainer_.close_links();
}

// Ends as worker_program does, after its last words.
void WorkerNode::end(const JobEnd& end) {
  send();
  exit_code_ = end.exit_code();
  go();
  trainer_.close_links();
  cluster_.watch().ended(member_.incarnation(), end, member_.state().phase());
  if (!end.success && newcomer_.replaced) cluster_.replace_worker();
}

void WorkerNode::send() {
  for (Message& message : member_.take_outgoing()) {
    cluster_.watch().sent(member_.incarnation(), message);
    cluster_.network().to_router(control_, std::move(message));
  }
}

void WorkerNode::take(const Message& message) {
  const int64_t version = member_.state().version();
  member_.on_message(now_ms(), message);
  if (member_.joined() && !std::exchange(preparing_, member_.joined())) prepare();
  step();
  if (!gone() && member_.state().version() != version) trainer_.on_news();
}

void WorkerNode::step() {
  member_.on_tick(now_ms());
  send();
  if (!member_.end()) return;
  member_.leave(0, "");
  end(*member_.end());
}

void WorkerNode::tick() {
  step();
  if (gone()) return;
  cluster_.watch().lives(member_.incarnation(), member_.joined());
  trainer_.turn();
  later(kWorkerTickUs, [this] { tick(); });
}

// Reading data takes time.
void WorkerNode::prepare() {
  later(cluster_.dice().between(0, 50'000), [this] {
    prepared_ = true;
    member_.declare(cluster_.declaration(newcomer_.digest));
    send();
  });
}

void WorkerNode::report(wire::EvalResult result) {
  cluster_.watch().reports(member_.incarnation());
  member_.report(std::move(result));
  member_.on_tick(now_ms());
  send();
}

std::string WorkerNode::describe() const {
  const std::string out = name() + ": ";
  if (exit_code_) return out + "left with " + std::to_string(*exit_code_);
  if (gone()) return out + "killed";
  return out + sim::describe(member_) + (member_.joined() ? ", " + trainer_.describe() : "");
}

}  // namespace pushpull::sim

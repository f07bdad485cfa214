#include "tests/simulation/worker_node.h"

#include <algorithm>

#include "common/net/tensor_wire.h"

namespace pushpull::sim {

namespace {

constexpr int64_t kTickUs = 20'000;

}  // namespace

WorkerNode::WorkerNode(Cluster& cluster, int number, const Newcomer& newcomer)
    : cluster_(cluster),
      number_(number),
      newcomer_(newcomer),
      member_(cluster.join_options(wire::ROLE_WORKER, number), [] { return wire::Stats(); }),
      control_(cluster.network().add_dealer(
          cluster.control_router(),
          [this](const Message& message) { happen([this, message] { take(message); }); })),
      trainer_(cluster, *this, number) {
  cluster_.watch().began(member_.incarnation(), {wire::ROLE_WORKER, number_, newcomer_.digest});
  later(cluster_.dice().between(0, 30'000), [this] { tick(); });
}

// ---- life ----

void WorkerNode::happen(std::function<void()> event) {
  if (gone_) return;
  if (cluster_.clock().now_us() < frozen_until_us_) {
    frozen_.push_back(std::move(event));
    return;
  }
  cluster_.guarded("worker " + std::to_string(number_), [&] {
    try {
      event();
    } catch (const Error& e) {
      // a server that does not answer; all else is wrong
      if (e.code() != ErrorCode::kUnreachable) throw;
      end({false, e.code(), e.what(), 0}, static_cast<int>(e.code()), e.what());
    }
  });
}

void WorkerNode::later(int64_t delay_us, std::function<void()> event) {
  cluster_.clock().after(delay_us,
                         [this, event = std::move(event)]() mutable { happen(std::move(event)); });
}

void WorkerNode::kill() {
  gone_ = true;
  cluster_.network().close(control_);
  trainer_.close_links();
}

void WorkerNode::freeze(int64_t ms) {
  frozen_until_us_ = std::max(frozen_until_us_, cluster_.clock().now_us() + ms * 1000);
  cluster_.clock().after(ms * 1000, [this] {
    for (auto& event : std::exchange(frozen_, {})) happen(std::move(event));
  });
}

// Ends as worker_program does: with a reason of its own, or because the job is over for it.
void WorkerNode::end(const JobEnd& end, int leave_code, const std::string& leave_text) {
  member_.leave(leave_code, leave_text);
  send();
  exit_code_ = end.exit_code();
  gone_ = true;
  trainer_.close_links();
  cluster_.watch().ended(member_.incarnation(), end, member_.state().phase());
  if (!end.success && newcomer_.replaced) cluster_.replace_worker();
}

// ---- control ----

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
  if (!gone_ && member_.state().version() != version) trainer_.on_news();
}

void WorkerNode::step() {
  member_.on_tick(now_ms());
  send();
  if (member_.end()) end(*member_.end(), 0, "");
}

void WorkerNode::tick() {
  step();
  if (gone_) return;
  cluster_.watch().lives(member_.incarnation(), member_.joined());
  trainer_.turn();
  later(kTickUs, [this] { tick(); });
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
  std::string out = "worker process " + std::to_string(number_) + ": ";
  if (exit_code_) return out + "left with " + std::to_string(*exit_code_);
  if (gone_) return out + "killed";
  if (!member_.joined()) return out + "joining";
  const wire::State& state = member_.state();
  if (state.version() < 0) return out + "no state";
  out += "rank " + std::to_string(state.rank()) + ", state " + std::to_string(state.version()) +
         " " + wire::Phase_Name(state.phase());
  return out + ", " + trainer_.describe();
}

}  // namespace pushpull::sim

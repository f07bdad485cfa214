#include "tests/simulation/worker_node.h"

#include <csignal>

#include "common/net/model_wire.h"
#include "tests/simulation/describe.h"
#include "tests/simulation/worker_links.h"
#include "worker/trainer.h"

namespace pushpull::sim {

namespace {

constexpr size_t kPartBytes = size_t{1} << 16;  // of the largest part of a group
constexpr int64_t kReasonMs = 5000;             // as in worker/member/control.cpp

}  // namespace

WorkerNode::WorkerNode(Cluster& cluster, int number, const Newcomer& newcomer)
    : Process(cluster, "worker " + std::to_string(number)),
      cluster_(cluster),
      number_(number),
      newcomer_(newcomer),
      member_(cluster.join_options(wire::ROLE_WORKER, number), [this] { return stats(); }),
      activity_([&clock = cluster.clock()] { return clock.now_ms(); }),
      checks_(cluster, member_, number),
      data_(cluster.scenario().test_samples, newcomer.digest),
      control_(cluster.network().add_dealer(
          cluster.control_router(),
          [this](const Message& message) { happen([this, message] { take(message); }); })),
      peer_router_(cluster.network().add_router([this](const PeerId& /*peer*/, const Message& m) {
        happen([this, m] {
          peer_inbox_.push_back(m);
          wake_trainer();
        });
      })),
      thread_(*this, [this] { run_terms(); }),
      model_(cluster, thread_, checks_, number) {
  cluster_.on_control_closed(control_, member_.incarnation(),
                             [this] { happen([this] { member_.on_closed(now_ms()); }); });
  cluster_.watch().began(member_.incarnation(), {wire::ROLE_WORKER, number, newcomer.digest});
  later(cluster_.dice().between(0, 30'000), [this] { tick(); });
}

WorkerNode::~WorkerNode() { thread_.abandon(); }

// ---- the trainer's thread ----

// As WorkerLife does.
void WorkerNode::run_terms() {
  while (!member_.joined()) thread_.wait();
  while (true) {
    term_id_ = member_.term_id();
    thread_.sleep(cluster_.dice().between(0, 50'000));  // reads the data
    wire::Declare declaration = cluster_.declaration(newcomer_.digest, own_stage());
    if (model_.group_stage() != nullptr) declaration.set_group_endpoint(peer_endpoint_of(number_));
    peer_inbox_.clear();
    member_.declare(term_id_, declaration);
    member_.offer_weights(own_weights());
    send();
    const std::optional<wire::State> state = wait_for_group(wait_for_training());
    if (!state) continue;
    std::optional<Error> unreachable;  // a fiber must not wait in a catch block
    try {
      train(*state);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kUnreachable) throw;
      unreachable = e;
    }
    if (unreachable && !wait_for_reason()) throw Error(*unreachable);
    close_links();
  }
}

int WorkerNode::own_stage() const {
  if (!cluster_.by_stage()) return -1;
  return newcomer_.stage >= 0 ? newcomer_.stage : number_ % cluster_.toy().stages();
}

std::span<const float> WorkerNode::own_weights() const {
  const std::span<const float> all = model_.own_weights();
  if (all.empty() || own_stage() < 0) return all;
  const Range part = cluster_.toy().elements_of(own_stage());
  return all.subspan(static_cast<size_t>(part.lo), static_cast<size_t>(part.size()));
}

void WorkerNode::train(const wire::State& state) {
  terms_.push_back(std::make_unique<Term>());
  Term& term = *terms_.back();
  term.state = state;
  const JobView view{cluster_.scenario().job, term_id_, member_.incarnation(), term.state};
  PushPullSetup setup = trainer_setup(view, data_, model_);
  setup.flush_bytes = cluster_.scenario().flush_bytes;
  setup.window_bytes = cluster_.scenario().window_bytes;
  CoordinatorLink& coordinator = *this;
  TrainerMakers make;
  make.links = [&](PushPull& push_pull) {
    return std::make_unique<WorkerLinks>(cluster_, *this, checks_, push_pull, term.state);
  };
  if (model_.group_stage() != nullptr) {
    const GroupSetup group{term_id_, member_.incarnation(), group_silence_ms(view.job),
                           static_cast<int64_t>(kPartBytes)};
    make.group = [this, group](Links& /*links*/) {
      return std::make_unique<WorkerGroup>(cluster_, *this, peer_inbox_, group);
    };
  }
  make.step = push_steps(view.job, model_, term.state.total_steps());
  term.trainer =
      std::make_unique<Trainer>(view, std::move(setup), data_, model_, coordinator, make, trace_);
  term.trainer->run();
}

// Returns the state with which training begins, or nothing if the term is over first.
std::optional<wire::State> WorkerNode::wait_for_training() {
  while (!over()) {
    const wire::State& state = member_.state();
    if (state.phase() >= wire::PHASE_TRAINING && state.phase() <= wire::PHASE_FINISHED) {
      return state;
    }
    activity_.wait([] { return std::string("the start"); });
    thread_.wait();
  }
  return std::nullopt;
}

// As TrainingWork does. A spare waits for a place in a group.
std::optional<wire::State> WorkerNode::wait_for_group(std::optional<wire::State> state) {
  GroupStage* const group = model_.group_stage();
  if (group == nullptr || !state) return state;
  while (!state->has_group()) {
    if (over()) return std::nullopt;
    activity_.wait([] { return std::string("a place in a group"); });
    thread_.wait();
    state = member_.state();
  }
  if (own_stage() >= 0) {
    const TensorTable whole = from_wire(state->tensors());
    if (state->group().stage() != own_stage() || whole != cluster_.toy().table()) {
      cluster_.wrong("a worker with stage " + std::to_string(own_stage()) + " got stage " +
                     std::to_string(state->group().stage()) + ", or another model than declared");
    }
  }
  take_stage(*group, cluster_.scenario().job, *state);
  return state;
}

// Same as Control::wait_for_reason.
bool WorkerNode::wait_for_reason() {
  int64_t waited_ms = 0;
  for (int64_t last_ms = now_ms(); !over() && waited_ms < kReasonMs;) {
    thread_.wait();
    const int64_t now = now_ms();
    if (!member_.misses_coordinator(now)) waited_ms += now - last_ms;
    last_ms = now;
  }
  return over();
}

bool WorkerNode::over() const { return member_.end().has_value() || member_.term_id() != term_id_; }

std::optional<JobEnd> WorkerNode::end() const {
  if (member_.end()) return member_.end();
  JobEnd end;
  end.next_term = true;
  return end;
}

void WorkerNode::report(wire::EvalResult result) {
  if (result.chunks_size() > 0) checks_.count(result.step(), true);
  cluster_.watch().reports(member_.incarnation());
  member_.report(term_id_, std::move(result));
  member_.on_tick(now_ms());
  send();
}

// ---- events ----

wire::Stats WorkerNode::stats() const {
  wire::Stats stats;
  activity_.put(&stats);
  return stats;
}

// A server that does not answer may end the worker, and once it is no member, so may the spoilt
// weights that it reads. Any other error is a failed check.
bool WorkerNode::ends_with(const Error& error) {
  const bool spoilt = error.code() == ErrorCode::kNotFinite && checks_.given_up();
  if (error.code() != ErrorCode::kUnreachable && !spoilt) return false;
  member_.leave(static_cast<int>(error.code()), error.what());
  end_with({false, error.code(), error.what(), 0});
  return true;
}

void WorkerNode::request_end() {
  happen([this] {
    member_.on_signal(now_ms(), SIGTERM);
    step();
  });
}

void WorkerNode::set_links(WorkerLinks* links) {
  links_ = links;
  if (links != nullptr && stalls_) thread_.stop();
}

void WorkerNode::stop_trainer() {
  stalls_ = true;
  if (links_ != nullptr) thread_.stop();
}

void WorkerNode::silence_links(int server, int64_t until_ms) {
  if (links_ != nullptr) links_->silence(server, until_ms);
}

void WorkerNode::set_group(WorkerGroup* group) {
  group_ = group;
  group_->silence(group_silent_until_ms_);
}

void WorkerNode::silence_group(int64_t until_ms) {
  group_silent_until_ms_ = until_ms;
  if (group_ != nullptr) group_->silence(until_ms);
}

void WorkerNode::close_links() {
  if (links_ != nullptr) links_->close();
  links_ = nullptr;
  if (group_ != nullptr) group_->close();
  group_ = nullptr;
}

void WorkerNode::kill() {
  mark_ended();
  cluster_.network().close(control_);
  close_links();
}

// Ends as worker_program does, after Leave.
void WorkerNode::end_with(const JobEnd& end) {
  send();
  exit_code_ = end.exit_code();
  mark_ended();
  close_links();
  cluster_.watch().ended(member_.incarnation(), end, member_.state().phase());
  if (!end.success && newcomer_.replaced) cluster_.replace_worker(own_stage());
}

void WorkerNode::send() {
  for (Message& message : member_.take_outgoing()) {
    cluster_.watch().sent(member_.incarnation(), message);
    if (message.header.has_own_weights()) {
      cluster_.givers.emplace(message.header.term_id(), member_.incarnation());
    }
    cluster_.network().to_router(control_, std::move(message));
  }
}

void WorkerNode::take(const Message& message) {
  const int64_t version = member_.state().version();
  const uint64_t term_id = member_.term_id();
  member_.on_message(now_ms(), message);
  step();
  if (!has_ended() && (member_.state().version() != version || member_.term_id() != term_id)) {
    wake_trainer();
  }
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
  end_with(*member_.end());
}

void WorkerNode::tick() {
  step();
  if (has_ended()) return;
  cluster_.watch().lives(member_.incarnation(), member_.joined());
  later(kWorkerTickUs, [this] { tick(); });
  wake_trainer();  // last: it may throw, and the next turn must already be scheduled
}

std::string WorkerNode::describe() const {
  const std::string out = name() + ": ";
  if (exit_code_) return out + "left with " + std::to_string(*exit_code_);
  if (has_ended()) return out + "killed";
  if (!member_.joined()) return out + sim::describe(member_);
  return out + sim::describe(member_) + ", " +
         (thread_.sleeps() ? "computing" : "waits for " + stats().waits_for());
}

}  // namespace pushpull::sim

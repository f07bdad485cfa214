#include "tests/simulation/worker_node.h"

#include <algorithm>

#include "common/net/tensor_wire.h"

namespace pushpull::sim {

namespace {

constexpr int64_t kTickUs = 20'000;
constexpr int64_t kHelloMs = 500;
constexpr int64_t kJoinTimeoutMs = 60'000;
constexpr int64_t kRepeatMs = 1000;

}  // namespace

WorkerNode::WorkerNode(Cluster& cluster, int number)
    : cluster_(cluster),
      number_(number),
      incarnation_(cluster.dice().next()),
      control_(cluster.network().add_dealer(
          cluster.control_router(),
          [this](const Message& message) { happen([this, message] { take_control(message); }); })),
      joining_ms_(cluster.clock().now_ms()),
      heard_ms_(joining_ms_) {
  later(cluster_.dice().between(0, 30'000), [this] { control(); });
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
      end(static_cast<int>(e.code()), e.what());
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
  close_links();
}

void WorkerNode::close_links() {
  for (const auto& lanes : servers_) {
    for (const int dealer : lanes) cluster_.network().close(dealer);
  }
}

void WorkerNode::freeze(int64_t ms) {
  frozen_until_us_ = std::max(frozen_until_us_, cluster_.clock().now_us() + ms * 1000);
  cluster_.clock().after(ms * 1000, [this] {
    heard_ms_ = cluster_.clock().now_ms();
    for (auto& event : std::exchange(frozen_, {})) happen(std::move(event));
  });
}

void WorkerNode::end(int code, const std::string& text) {
  Message message;
  message.header.mutable_leave()->set_incarnation(incarnation_);
  message.header.mutable_leave()->set_code(text.empty() ? 0 : code);
  message.header.mutable_leave()->set_text(text);
  send_control(std::move(message));
  exit_code_ = code;
  gone_ = true;
  close_links();
  if (code != 0) cluster_.replace_worker();
}

// ---- control ----

void WorkerNode::send_control(Message message) {
  cluster_.network().to_router(control_, std::move(message));
}

void WorkerNode::take_control(const Message& message) {
  heard_ms_ = cluster_.clock().now_ms();
  const wire::Header& header = message.header;
  if (header.has_refused()) {
    end(header.refused().code());
  } else if (header.has_job_text() && !text_) {
    text_ = header.job_text();
    // reading data takes time
    later(cluster_.dice().between(0, 50'000), [this] {
      prepared_ = true;
      declare();
    });
  } else if (header.has_state() && text_) {
    take_state(header.state());
  } else if (header.has_eval_taken()) {
    results_.erase(header.eval_taken().number());
  }
}

void WorkerNode::take_state(const wire::State& state) {
  declared_ = state.declared();
  if (state_ && state_->version() >= state.version()) return;
  state_ = state;
  news_ = true;
  heartbeat_now_ = true;
  heartbeat();
  if (state.phase() == wire::PHASE_FINISHED) return end(0);
  if (state.phase() == wire::PHASE_FAILED) return end(state.code());
  // the trainer takes it in when it waits; it may be computing now
  turn();
}

void WorkerNode::say_hello() {
  Message message;
  wire::Hello* hello = message.header.mutable_hello();
  hello->set_role(wire::ROLE_WORKER);
  hello->set_host("host");
  hello->set_pid(2000 + number_);
  hello->set_incarnation(incarnation_);
  send_control(std::move(message));
}

void WorkerNode::declare() {
  Message message;
  wire::Declare* out = message.header.mutable_declare();
  out->set_incarnation(incarnation_);
  to_wire(cluster_.toy().table(), out->mutable_tensors());
  out->set_train_samples(1000);
  out->set_test_samples(cluster_.scenario().test_samples);
  out->set_data_digest("digest");
  out->set_numerics("numerics");
  send_control(std::move(message));
}

void WorkerNode::report(wire::EvalResult result) {
  result.set_number(next_result_++);
  Message message;
  *message.header.mutable_eval_result() = result;
  send_control(std::move(message));
  results_[result.number()] = std::move(result);
}

void WorkerNode::heartbeat() {
  const int64_t now = cluster_.clock().now_ms();
  const double timeout_s = cluster_.scenario().job.heartbeat_timeout_s;
  const auto interval_ms = std::min<int64_t>(1000, static_cast<int64_t>(timeout_s * 200));
  if (!heartbeat_now_ && now - heartbeat_ms_ < interval_ms) return;
  heartbeat_now_ = false;
  heartbeat_ms_ = now;
  Message message;
  message.header.mutable_heartbeat()->set_incarnation(incarnation_);
  message.header.mutable_heartbeat()->set_state_version(state_ ? state_->version() : -1);
  send_control(std::move(message));
}

// The control thread's loop, and what the trainer does when time has passed.
void WorkerNode::control() {
  const int64_t now = cluster_.clock().now_ms();
  if (!text_) {
    if (now - joining_ms_ > kJoinTimeoutMs) {
      gone_ = true;  // the job may be over by now
      return;
    }
    if (now - hello_ms_ >= kHelloMs) {
      hello_ms_ = now;
      say_hello();
    }
  } else {
    if (now - repeat_ms_ >= kRepeatMs) {
      repeat_ms_ = now;
      if (prepared_ && !declared_) declare();
      for (const auto& [number, result] : results_) {
        Message message;
        *message.header.mutable_eval_result() = result;
        send_control(std::move(message));
      }
    }
    heartbeat();
    const double timeout_s = cluster_.scenario().job.heartbeat_timeout_s;
    if (now - heard_ms_ > static_cast<int64_t>(timeout_s * 1000)) {
      return end(static_cast<int>(ErrorCode::kPeerLost));
    }
  }
  turn();
  later(kTickUs, [this] { control(); });
}

// ---- trainer ----

void WorkerNode::make_trainer(const wire::State& state) {
  const Scenario& scenario = cluster_.scenario();
  PushPullSetup setup;
  setup.run = text_->run();
  setup.incarnation = incarnation_;
  setup.job = scenario.job;
  setup.total_elements = cluster_.toy().table().total;
  setup.servers = state.data_endpoints_size();
  setup.barriers = barriers_of(scenario.job, state.start_step(), state.end_step());
  setup.shares = state.shares();
  setup.chunks = (scenario.test_samples + scenario.job.micro_batch - 1) / scenario.job.micro_batch;
  setup.flush_bytes = scenario.flush_bytes;
  setup.window_bytes = scenario.window_bytes;
  push_pull_ = std::make_unique<PushPull>(std::move(setup));
  const FloatAllocator memory = scenario.sharing.on ? memory_.allocator() : heap_floats;
  gradient_ = make_host_sum(cluster_.toy().table(), push_pull_->slices(), memory);
  encoder_ = std::make_unique<Encoder>(scenario.job, cluster_.toy().table(), push_pull_->slices());
  if (scenario.job.strategy.kind == StrategyKind::kLocal) {
    local_ =
        std::make_unique<LocalSteps>(scenario.job, cluster_.toy().table(), push_pull_->slices(),
                                     state.total_steps(), LocalMemory{memory, heap_floats});
  }
  for (int server = 0; server < state.data_endpoints_size(); ++server) {
    const int router = cluster_.data_router(state.data_endpoints(server));
    const auto take = [this, server](const Message& m) {
      happen([this, server, m] {
        inbox_.emplace_back(server, m);
        turn();
      });
    };
    servers_.emplace_back();
    for (int lane = 0; lane < push_pull_->connections(server); ++lane) {
      servers_.back().push_back(cluster_.network().add_dealer(router, take));
    }
  }
  shares_.resize(servers_.size());
  plan_sharing();
}

void WorkerNode::send() {
  std::vector<ToServer> messages = push_pull_->take_outgoing();
  if (busy_) check_read_versions(messages);
  for (ToServer& out : messages) {
    if (shares_[static_cast<size_t>(out.server)]) {
      cluster_.referred_gradients += memory_.refer(out.message);
    } else if (cluster_.scenario().sharing.on) {
      copy_payloads(out.message);
    }
    cluster_.network().to_router(
        servers_[static_cast<size_t>(out.server)][static_cast<size_t>(out.connection)],
        std::move(out.message));
  }
}

void WorkerNode::exchange() {
  for (const auto& [server, shared] : std::exchange(changes_, {})) {
    shares_[static_cast<size_t>(server)] = shared;
    push_pull_->share_memory(server, shared);
  }
  const int64_t now = cluster_.clock().now_ms();
  for (; !inbox_.empty(); inbox_.pop_front()) {
    const auto& [server, message] = inbox_.front();
    if (message.header.weights().slices_size() > 0 &&
        message.header.weights().slices(0).slice() == 0) {
      first_slice_ = message.payloads.front().bytes.data();
    }
    if (!push_pull_->on_message(server, message, now)) {
      cluster_.wrong("a worker refused " + message.header.ShortDebugString());
    }
  }
  push_pull_->on_tick(now);
  send();
}

void WorkerNode::turn() {
  if (gone_ || busy_ || !state_ || !prepared_) return;
  if (state_->phase() < wire::PHASE_TRAINING || state_->phase() > wire::PHASE_FINISHED) return;
  if (!push_pull_) make_trainer(*state_);
  if (forward_) return forward();
  while (true) {
    exchange();
    const Task task = push_pull_->next(cluster_.clock().now_ms());
    send();
    if (task.kind == Task::kCompute) return compute(task);
    if (task.kind == Task::kEvaluate) return evaluate(task);
    if (begin_early()) return forward();
    if (!news_) return;
    news_ = false;
    push_pull_->on_state(*state_, cluster_.clock().now_ms());
  }
}

bool WorkerNode::begin_early() {
  if (!cluster_.scenario().early) return false;
  const std::optional<Task> task = push_pull_->early();
  if (!task) return false;
  forward_ = Forward{*task, 0, std::vector<float>(push_pull_->weights().size())};
  ++cluster_.early_tasks;
  return true;
}

bool WorkerNode::forward_may_go_on() const {
  const std::vector<TensorInfo>& tensors = cluster_.toy().table().tensors;
  if (forward_->tensor == tensors.size()) return push_pull_->all_here();
  const TensorInfo& next = tensors[forward_->tensor];
  return push_pull_->here({next.offset, next.offset + next.size});
}

// Layer by layer, each of which waits for its own tensors; then the pull must be over.
void WorkerNode::forward() {
  if (!forward_may_go_on()) {
    if (std::exchange(news_, false)) {
      push_pull_->on_state(*state_, cluster_.clock().now_ms());
    }
    exchange();
    if (!push_pull_->stands(forward_->task)) {
      forward_.reset();
      return turn();
    }
    if (!forward_may_go_on()) {
      ++cluster_.early_waits;
      return;
    }
  }
  const std::vector<TensorInfo>& tensors = cluster_.toy().table().tensors;
  if (forward_->tensor < tensors.size()) {
    const TensorInfo& tensor = tensors[forward_->tensor++];
    const std::span<const float> weights = push_pull_->weights_of(forward_->task);
    std::copy_n(weights.begin() + tensor.offset, tensor.size,
                forward_->read.begin() + tensor.offset);
    busy_ = true;
    return later(cluster_.dice().between(0, cluster_.scenario().compute_us / 3), [this] {
      busy_ = false;
      turn();
    });
  }
  const std::span<const float> weights = push_pull_->weights();
  if (!std::equal(weights.begin(), weights.end(), forward_->read.begin()) && !given_up()) {
    cluster_.wrong("worker " + std::to_string(number_) + " has read other weights early");
  }
  const Task task = forward_->task;
  forward_.reset();
  compute(task);
}

void WorkerNode::compute(const Task& task) {
  check_weights(task, false);
  const std::span<const float> weights = push_pull_->weights();
  if (std::as_bytes(weights).data() == first_slice_) ++cluster_.in_place_tasks;
  if (servers_.size() > 1 && push_pull_->weights_in_place()) ++cluster_.side_by_side_tasks;
  read_.assign(weights.begin(), weights.end());
  push_pull_->upcoming();
  busy_ = true;
  push_pull_->begin_push(task.step, task.range);
  std::vector<float> losses;
  for (const Range& node : push_pull_->nodes(task.range)) {
    const auto keep = [&](int slice, Payload part) {
      parts_.push_back({slice, node, encoder_->encode(node, slice, std::move(part))});
    };
    if (!local_) {
      sum_gradients(push_pull_->weights(), task.step, node, keep, losses);
      continue;
    }
    local_->begin(node, push_pull_->weights());
    for (int64_t step = task.step; step < task.step + task.steps; ++step) {
      sum_gradients(
          local_->weights(), step, node, [](int, const Payload&) {}, losses);
      local_->step(step, gradient_->sum());
    }
    local_->finish(push_pull_->weights(), keep);
  }
  push_some((parts_.size() + 2) / 3, task, std::move(losses));
}

void WorkerNode::sum_gradients(std::span<const float> weights, int64_t step, Range node,
                               const GradientSum::SliceReady& ready, std::vector<float>& losses) {
  const Toy& toy = cluster_.toy();
  gradient_->begin(node.size());
  for (int64_t m = node.lo; m < node.hi; ++m) {
    toy.gradient(weights, step, m, gradient_->leaf());
    losses.push_back(Toy::loss(step, m));
    if (gradient_->in_last_leaf()) {
      for (size_t t = toy.table().tensors.size(); t-- > 0;) gradient_->tensor_ready(t, ready);
    }
    gradient_->end_leaf();
  }
}

// Slices go out one after the other while the rest is being computed.
void WorkerNode::push_some(size_t count, const Task& task, std::vector<float> losses) {
  const int64_t longest = cluster_.scenario().compute_us * task.range.size() * task.steps / 3 + 1;
  later(cluster_.dice().between(0, longest),
        [this, count, task, losses = std::move(losses)]() mutable {
          for (size_t i = 0; i < count && !parts_.empty(); ++i, parts_.pop_front()) {
            Part& part = parts_.front();
            push_pull_->add_part(part.slice, part.node, std::move(part.payload));
          }
          if (!parts_.empty()) {
            send();
            return push_some(count, task, std::move(losses));
          }
          check_unchanged();
          HashSum drawn;
          for (int64_t step = task.step; step < task.step + task.steps; ++step) {
            for (int64_t m = task.range.lo; m < task.range.hi; ++m) {
              drawn += Toy::data_hash(step, m);
            }
          }
          push_pull_->end_push(losses, 0.0, cluster_.clock().now_ms(), drawn.bytes());
          send();
          busy_ = false;
          turn();
        });
}

void WorkerNode::evaluate(const Task& task) {
  check_weights(task, true);
  read_.assign(push_pull_->weights().begin(), push_pull_->weights().end());
  busy_ = true;
  wire::EvalResult result;
  result.set_incarnation(incarnation_);
  result.set_step(task.step);
  for (int64_t chunk = task.range.lo; chunk < task.range.hi; ++chunk) {
    *result.add_chunks() = cluster_.toy().evaluate(push_pull_->evaluation_weights(), chunk);
  }
  const int64_t longest = cluster_.scenario().compute_us * task.range.size() + 1;
  later(cluster_.dice().between(0, longest), [this, result = std::move(result)]() mutable {
    check_unchanged();
    report(std::move(result));
    push_pull_->finish_evaluation();
    busy_ = false;
    turn();
  });
}

std::string WorkerNode::describe() const {
  std::string out = "worker process " + std::to_string(number_) + ": ";
  if (exit_code_) return out + "left with " + std::to_string(*exit_code_);
  if (gone_) return out + "killed";
  if (!text_) return out + "joining";
  if (!state_) return out + "no state";
  out += "rank " + std::to_string(state_->rank()) + ", state " + std::to_string(state_->version()) +
         " " + wire::Phase_Name(state_->phase());
  if (busy_) return out + ", computing";
  return out + (push_pull_ ? ", waits for " + push_pull_->waiting_for() : ", no trainer");
}

}  // namespace pushpull::sim

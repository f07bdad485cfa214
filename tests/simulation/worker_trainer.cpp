#include "tests/simulation/worker_trainer.h"

#include <algorithm>

#include "tests/simulation/worker_node.h"

namespace pushpull::sim {

std::unique_ptr<WorkerTrainer> WorkerTrainer::next() const {
  auto out = std::make_unique<WorkerTrainer>(cluster_, process_, number_);
  out->computed_ = computed_;
  return out;
}

void WorkerTrainer::on_news() {
  news_ = true;
  turn();
}

void WorkerTrainer::close_links() {
  for (const auto& lanes : servers_) {
    for (const int dealer : lanes) cluster_.network().close(dealer);
  }
}

void WorkerTrainer::silence_links(int server, int64_t until_ms) {
  if (static_cast<size_t>(server) >= servers_.size()) return;
  for (const int dealer : servers_[static_cast<size_t>(server)]) {
    cluster_.network().silence(dealer, until_ms);
  }
}

std::string WorkerTrainer::describe() const {
  if (busy_) return "computing";
  return push_pull_ ? "waits for " + push_pull_->waiting_for() : "no trainer";
}

wire::Stats WorkerTrainer::stats() const {
  wire::Stats stats;
  stats.set_progress(computed_);
  if (!busy_ && !stopped_)
    stats.set_waits_for(push_pull_ ? push_pull_->waiting_for() : "the start");
  return stats;
}

void WorkerTrainer::compute_for(int64_t longest_us, std::function<void()> then) {
  busy_ = true;
  process_.later(cluster_.dice().between(0, longest_us), [this, then = std::move(then)]() mutable {
    if (!stopped_) then();
  });
}

void WorkerTrainer::make(const wire::State& state) {
  const Scenario& scenario = cluster_.scenario();
  PushPullSetup setup;
  setup.run = process_.member().run();
  setup.incarnation = process_.member().incarnation();
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
  servers_.resize(static_cast<size_t>(state.data_endpoints_size()));
  for (int server = 0; server < state.data_endpoints_size(); ++server) connect(server, state);
  shares_.resize(servers_.size());
  plan_sharing();
  push_pull_->on_state(state, cluster_.clock().now_ms());
}

void WorkerTrainer::connect(int server, const wire::State& state) {
  const int router = cluster_.data_router(state.data_endpoints(server));
  std::vector<int>& dealers = servers_[static_cast<size_t>(server)];
  for (const int dealer : dealers) cluster_.network().close(dealer);
  dealers.clear();
  const int64_t life = ++lives_[server];
  const auto take = [this, server, life](const Message& m) {
    process_.happen([this, server, life, m] {
      if (lives_[server] != life) return;  // from a closed connection
      inbox_.emplace_back(server, m);
      turn();
    });
  };
  while (std::ssize(dealers) < push_pull_->connections(server)) {
    dealers.push_back(cluster_.network().add_dealer(router, take));
  }
}

// Connects to replacements like Links. Messages of the previous process are dropped with its
// connection.
void WorkerTrainer::follow_replaced() {
  for (const int server : push_pull_->take_replaced()) {
    connect(server, process_.member().state());
    std::erase_if(inbox_, [server](const auto& from) { return from.first == server; });
    shares_[static_cast<size_t>(server)] = false;
    std::erase_if(changes_, [server](const auto& change) { return change.first == server; });
  }
}

void WorkerTrainer::send() {
  follow_replaced();
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

void WorkerTrainer::exchange() {
  follow_replaced();
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
  if (std::exchange(news_, false)) push_pull_->on_state(process_.member().state(), now);
  push_pull_->on_tick(now);
  send();
}

void WorkerTrainer::turn() {
  const wire::State& state = process_.member().state();
  if (process_.has_ended() || stopped_ || busy_ || !process_.prepared()) return;
  if (state.phase() < wire::PHASE_TRAINING || state.phase() > wire::PHASE_FINISHED) return;
  if (!push_pull_) make(state);
  if (forward_) return forward();
  exchange();
  const Task task = push_pull_->next(cluster_.clock().now_ms());
  send();
  if (task.kind == Task::kCompute) return compute(task);
  if (task.kind == Task::kEvaluate) return evaluate(task);
  if (begin_early()) forward();
}

bool WorkerTrainer::begin_early() {
  if (!cluster_.scenario().early) return false;
  const std::optional<Task> task = push_pull_->early();
  if (!task) return false;
  forward_ = Forward{*task, 0, std::vector<float>(push_pull_->weights().size())};
  ++cluster_.early_tasks;
  return true;
}

bool WorkerTrainer::forward_may_continue() const {
  const std::vector<TensorInfo>& tensors = cluster_.toy().table().tensors;
  if (forward_->tensor == tensors.size()) return push_pull_->all_here();
  const TensorInfo& next = tensors[forward_->tensor];
  return push_pull_->here({next.offset, next.offset + next.size});
}

// Computes layer by layer. Each layer waits for its own tensors, and the last for the end of the
// pull.
void WorkerTrainer::forward() {
  if (!forward_may_continue()) {
    exchange();
    if (!push_pull_->is_current(forward_->task)) {
      forward_.reset();
      return turn();
    }
    if (!forward_may_continue()) {
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
    return compute_for(cluster_.scenario().compute_us / 3, [this] {
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

void WorkerTrainer::compute(const Task& task) {
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

void WorkerTrainer::sum_gradients(std::span<const float> weights, int64_t step, Range node,
                                  const GradientSum::SliceReady& ready,
                                  std::vector<float>& losses) {
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

// Sends slices one after the other while the rest is computed.
void WorkerTrainer::push_some(size_t count, const Task& task, std::vector<float> losses) {
  const int64_t longest = cluster_.scenario().compute_us * task.range.size() * task.steps / 3 + 1;
  compute_for(longest, [this, count, task, losses = std::move(losses)]() mutable {
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
    computed_ += task.range.size() * task.steps;
    cluster_.computed[number_] = computed_;
    busy_ = false;
    turn();
  });
}

void WorkerTrainer::evaluate(const Task& task) {
  check_weights(task, true);
  read_.assign(push_pull_->weights().begin(), push_pull_->weights().end());
  busy_ = true;
  wire::EvalResult result;
  result.set_step(task.step);
  for (int64_t chunk = task.range.lo; chunk < task.range.hi; ++chunk) {
    *result.add_chunks() = cluster_.toy().evaluate(push_pull_->evaluation_weights(), chunk);
  }
  const int64_t longest = cluster_.scenario().compute_us * task.range.size() + 1;
  compute_for(longest, [this, result = std::move(result)]() mutable {
    check_unchanged();
    computed_ += result.chunks_size();
    process_.report(std::move(result));
    push_pull_->finish_evaluation();
    busy_ = false;
    turn();
  });
}

}  // namespace pushpull::sim

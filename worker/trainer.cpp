#include "worker/trainer.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "worker/compute/device_memory.h"

namespace pushpull {

namespace {

// Thrown out of a model's forward: the task is dropped, or must start again.
struct Dropped {};

// Computes tasks that push the sum of their micro-batches' gradients. Slices are pushed as backward
// finishes them, or, if clip-norm applies per push, once the norm of the whole sum is known.
class GradientTasks final : public TaskComputer {
 public:
  // clips_pushes: servers scale each push by its norm, so the push carries the norm.
  GradientTasks(Compute& compute, const Encoder& encoder, bool clips_pushes)
      : compute_(compute), encoder_(encoder), clips_pushes_(clips_pushes) {}

  std::optional<Result> run(const Task& task, TaskHost& host) override;
  bool holds_back_pushes() const override { return clips_pushes_; }

 private:
  Compute& compute_;
  const Encoder& encoder_;
  const bool clips_pushes_;
};

std::optional<TaskComputer::Result> GradientTasks::run(const Task& task, TaskHost& host) {
  const std::vector<Range> nodes = host.nodes();
  compute_.begin(task.step, nodes, host.weights());
  host.hint_next();
  Result result;
  bool begun = false;
  for (const Range& node : nodes) {
    const auto push_slice = [&](int slice, Payload part) {
      if (!std::exchange(begun, true)) host.begin_push();
      host.push(node, slice, std::move(part), !clips_pushes_);
    };
    try {
      if (!compute_.node(push_slice, result.losses, host.weights_needed())) return std::nullopt;
    } catch (const Error& e) {
      if (e.code() == ErrorCode::kNotFinite) host.note_not_finite();
      throw;
    }
  }
  if (clips_pushes_) {
    // the norm of the values that servers decode
    const auto sum = encoder_.sent().empty() ? compute_.sum() : encoder_.sent();
    result.squares = compute_.squares(sum, task.range.size());
  }
  return result;
}

}  // namespace

std::unique_ptr<TaskComputer> make_task_computer(const Job& job, const TensorTable& table,
                                                 const SliceMap& map, int64_t total_steps,
                                                 const LocalMemory& memory, Compute& compute,
                                                 const Encoder& encoder) {
  const StrategyTraits& traits = job.strategy.traits();
  if (traits.outer_optimizer) {
    return std::make_unique<LocalRounds>(compute, LocalSteps(job, table, map, total_steps, memory));
  }
  const bool clips_pushes = job.clip_norm > 0 && traits.single_pushes;
  return std::make_unique<GradientTasks>(compute, encoder, clips_pushes);
}

PushPullSetup trainer_setup(const JobView& run, const Dataset& dataset, Model& model) {
  PushPullSetup setup =
      push_pull_setup(run, model.table().total, Evaluator(run.job, dataset, model).chunks());
  setup.memory = weights_memory(model);
  // a device copies directly from pages that are registered with it, and only `memory` is
  setup.side_by_side = model.device_step() == nullptr;
  return setup;
}

Trainer::Trainer(const JobView& run, PushPullSetup setup, const Dataset& dataset, Model& model,
                 CoordinatorLink& coordinator, const MakeLinks& make_links, Trace& trace)
    : coordinator_(coordinator),
      table_(model.table()),
      evaluation_(
          {run.job, dataset, model}, run.incarnation, [this] { return coordinator_.over(); },
          coordinator.activity(), &trace),
      push_pull_(std::move(setup)),
      links_(make_links(push_pull_)),
      compute_(run.job, dataset, model, push_pull_.slices(), [this] { return coordinator_.over(); },
               {links_->gradients(),
                [this] {
                  return computer_->holds_back_pushes() ? nullptr : links_->device_gradients();
                }}),
      encoder_(run.job, model.table(), push_pull_.slices()),
      computer_(
          make_task_computer(run.job, model.table(), push_pull_.slices(), run.state.total_steps(),
                             {links_->gradients(), weights_memory(model)}, compute_, encoder_)),
      trace_(trace) {
  compute_.set_rank(run.state.rank());
  compute_.set_trace(trace);
  compute_.set_activity(coordinator.activity());
  trace_.set_rank(run.state.rank());
  trace_.set_tensors(table_);
  trace_.set_slice_elements(push_pull_.slices().elements(0).size());
  waits_since_s_ = now_seconds();
  links_->set_listener([this](const wire::State& news) {
    compute_.set_rank(news.rank());
    trace_.set_rank(news.rank());
  });
}

// ---- messages ----

// Receives all messages, resends overdue ones and sends new ones.
void Trainer::exchange() {
  links_->exchange([this](const Message& message) {
    if (trace_.on()) note_weights(message);
    if (split_.phase() == TimeSplit::kWait && push_pull_.pull_answered()) {
      split_.enter(TimeSplit::kPull);
    }
  });
}

void Trainer::note_weights(const Message& message) {
  const wire::Weights& weights = message.header.weights();
  const double now_s = now_seconds();
  for (int i = 0; i < weights.slices_size(); ++i) {
    const auto bytes = std::ssize(message.payloads[static_cast<size_t>(i)].bytes);
    trace_.add(Trace::kPull, weights.slices(i).version(), weights.slices(i).slice(), now_s, now_s,
               bytes);
  }
}

void Trainer::wait() {
  coordinator_.activity().wait([this] { return push_pull_.waiting_for(); });
  links_->wait();
}

JobEnd Trainer::run() {
  try {
    JobEnd end = train();
    if (end.signal != 0 || end.next_term) let_go();
    return end;
  } catch (const Error&) {
    let_go();  // the job may continue without this worker
    throw;
  }
}

// Waits until servers no longer read this worker's gradients.
void Trainer::let_go() {
  try {
    links_->wait_for_readers();
  } catch (const Error& error) {
    Log("worker").warn(error.what());
  }
}

JobEnd Trainer::train() {
  links_->attach();
  while (!coordinator_.over()) {
    exchange();
    const Task task = push_pull_.next(links_->now_ms());
    links_->send();
    if (task.kind == Task::kCompute) {
      compute(task);
    } else if (task.kind == Task::kEvaluate) {
      evaluate(task);
    } else if (const std::optional<Task> early = push_pull_.early()) {
      compute(*early);
    } else {
      if (task.kind == Task::kDone) keep_final(task.step);
      wait();
    }
  }
  return *coordinator_.end();
}

// In strategies whose versions are no steps, the newest weights of a worker are older ones.
void Trainer::keep_final(int64_t end_step) {
  const auto is_final = [end_step](int64_t version) { return version == end_step; };
  if (std::exchange(final_kept_, true)) return;
  if (!push_pull_.setup().job.strategy.traits().step_versions) return;
  if (!std::ranges::all_of(push_pull_.read_versions(), is_final)) return;
  compute_.finish(push_pull_.weights());
}

// ---- a training task ----

void Trainer::compute(const Task& task) {
  end_wait(task);
  final_kept_ = false;
  task_ = task;
  weights_ = push_pull_.weights_of(task);
  split_.enter(TimeSplit::kCompute);
  try {
    if (const auto result = computer_->run(task, *this)) finish_push(*result);
  } catch (const Dropped&) {
    compute_.take_data_hash();
    compute_.take_bad();
    split_.enter(TimeSplit::kWait);
  }
  if (trace_.on()) waits_since_s_ = now_seconds();
}

// Traces the time since the previous task as a wait.
void Trainer::end_wait(const Task& task) {
  if (trace_.on()) {
    trace_.add(Trace::kWait, task.step, Trace::kFirstWeights, waits_since_s_, now_seconds());
  }
}

void Trainer::await(int64_t number, const std::function<bool()>& here) {
  if (here()) {
    if (!trace_.on()) return;
    const double now_s = now_seconds();  // when the weights are needed, even if they have arrived
    return trace_.add(Trace::kWait, task_.step, number, now_s, now_s);
  }
  split_.enter(TimeSplit::kPull);
  const double begin_s = now_seconds();
  while (true) {
    exchange();
    // a restarted pull may place the weights in other memory
    if (coordinator_.over() || !push_pull_.is_current(task_) ||
        push_pull_.weights_of(task_).data() != weights_.data()) {
      throw Dropped{};
    }
    if (here()) break;
    wait();
  }
  split_.enter(TimeSplit::kCompute);
  trace_.add(Trace::kWait, task_.step, number, begin_s, now_seconds());
}

WeightsNeeded Trainer::weights_needed() {
  if (push_pull_.all_here() && !trace_.on()) return {};
  return [this](size_t tensor) {
    const TensorInfo& info = table_.tensors[tensor];
    await(static_cast<int64_t>(tensor), [&] {
      return push_pull_.here({info.offset, info.offset + info.size});
    });
  };
}

void Trainer::hint_next() {
  if (const std::optional<Task> task = push_pull_.upcoming()) {
    compute_.hint(task->step, push_pull_.nodes(task->range));
  }
}

void Trainer::begin_push() {
  await(Trace::kLastWeights, [this] { return push_pull_.all_here(); });
  push_pull_.begin_push(task_.step, task_.range);
}

void Trainer::push(Range node, int slice, Payload part, bool may_go) {
  split_.enter(TimeSplit::kPush);
  const double begin_s = trace_.on() ? now_seconds() : 0.0;
  Payload encoded = encoder_.encode(node, slice, std::move(part));
  const auto bytes = std::ssize(encoded.bytes);
  push_pull_.add_part(slice, node, std::move(encoded));
  // weights of the next pull may be arriving already, and servers wait for their acknowledgement
  if (may_go) push_pull_.pulls_while_pushing() ? exchange() : links_->send();
  if (trace_.on()) trace_.add(Trace::kPush, task_.step, slice, begin_s, now_seconds(), bytes);
  split_.enter(TimeSplit::kCompute);
}

void Trainer::finish_push(const TaskComputer::Result& result) {
  split_.enter(TimeSplit::kPush);
  const double begin_s = trace_.on() ? now_seconds() : 0.0;
  push_pull_.end_push(result.losses, result.squares, links_->now_ms(),
                      compute_.take_data_hash().bytes(), compute_.take_bad());
  links_->send();
  if (trace_.on()) trace_.add(Trace::kPush, task_.step, -1, begin_s, now_seconds());
  split_.enter(TimeSplit::kWait);
  split_.count_tasks(task_.steps);
  coordinator_.set_times(split_.totals());
}

// The versions are known only once all weights have arrived.
void Trainer::note_not_finite() {
  wire::Applied push;
  push.set_step(task_.step);
  push.set_lo(static_cast<int32_t>(task_.range.lo));
  push.set_hi(static_cast<int32_t>(task_.range.hi));
  if (push_pull_.all_here()) {
    for (const int64_t version : push_pull_.read_versions()) push.add_read_versions(version);
  }
  coordinator_.note_failed(std::move(push));
}

// ---- an evaluation ----

void Trainer::evaluate(const Task& task) {
  end_wait(task);
  split_.enter(TimeSplit::kOther);
  coordinator_.set_times(split_.totals());
  auto result = evaluation_.run(task.step, task.range, push_pull_.evaluation_weights());
  if (trace_.on()) waits_since_s_ = now_seconds();
  if (!result) return;
  coordinator_.report(std::move(*result));
  push_pull_.finish_evaluation();
}

LocalRounds::LocalRounds(Compute& compute, LocalSteps steps)
    : compute_(compute), steps_(std::move(steps)) {}

// The first gradient is taken at the pulled weights, so it may begin before all of them have
// arrived.
std::optional<TaskComputer::Result> LocalRounds::run(const Task& task, TaskHost& host) {
  std::span<const float> weights = host.weights();
  Result result;
  const auto keep = [](int, const Payload&) {};
  for (int64_t i = 0; i < task.steps; ++i) {
    compute_.begin(task.step + i, {task.range}, weights);
    if (i + 1 < task.steps) {
      compute_.hint(task.step + i + 1, {task.range});
    } else {
      host.hint_next();
    }
    try {
      if (!compute_.node(keep, result.losses, host.weights_needed())) return std::nullopt;
    } catch (const Error& e) {
      if (e.code() == ErrorCode::kNotFinite) host.note_not_finite();
      throw;
    }
    if (i == 0) {
      host.begin_push();
      steps_.begin(task.range, host.weights());
      weights = steps_.weights();
    }
    steps_.step(task.step + i, compute_.sum());
  }
  steps_.finish(host.weights(), [&](int slice, Payload part) {
    host.push(task.range, slice, std::move(part), true);
  });
  return result;
}

}  // namespace pushpull

#include "worker/trainer.h"

#include "common/base/error.h"
#include "worker/exchange/device_memory.h"

namespace pushpull {

namespace {

// The whole gradient must be here before the first byte may go.
bool clips_pushes(const Job& job) {
  return job.clip_norm > 0 && !job.strategy.traits().step_versions;
}

// Thrown out of a model's forward: the task is not to be done, or not now.
struct Dropped {};

}  // namespace

Trainer::Trainer(const Job& job, uint64_t run, uint64_t incarnation, const wire::State& state,
                 const Dataset& dataset, Model& model, Control& control, zmq::context_t& context,
                 Trace& trace)
    : job_(job),
      incarnation_(incarnation),
      control_(control),
      table_(model.table()),
      evaluator_(job, dataset, model),
      push_pull_([&] {
        PushPullSetup setup =
            push_pull_setup(job, run, incarnation, state, model.table().total, evaluator_.chunks());
        setup.memory = weights_memory(model);
        // a device copies directly from pages that are registered with it, which `memory` is
        setup.side_by_side = model.device_step() == nullptr;
        return setup;
      }()),
      links_(job, state, push_pull_, control, context, weights_mapped(model),
             device_to_share(model, job)),
      compute_(job, dataset, model, push_pull_.slices(), [this] { return control_.over(); },
               {links_.gradients(),
                [this] { return clips_pushes(job_) ? nullptr : links_.device_gradients(); }}),
      encoder_(job, model.table(), push_pull_.slices()),
      trace_(trace) {
  compute_.set_rank(state.rank());
  compute_.set_trace(trace);
  trace_.set_rank(state.rank());
  trace_.set_tensors(table_);
  trace_.set_slice_elements(push_pull_.slices().elements(0).size());
  waits_since_s_ = now_seconds();
  if (job.strategy.traits().outer_optimizer) {
    local_ =
        std::make_unique<LocalSteps>(job, model.table(), push_pull_.slices(), state.total_steps(),
                                     LocalMemory{links_.gradients(), weights_memory(model)});
  }
}

// Takes in what has come, repeats what is overdue, sends.
void Trainer::exchange() {
  links_.exchange([this](const Message& message) {
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
  links_.wait([this](const wire::State& news) {
    compute_.set_rank(news.rank());
    trace_.set_rank(news.rank());
  });
}

JobEnd Trainer::run() {
  links_.attach();
  while (!control_.over()) {
    exchange();
    const Task task = push_pull_.next(now_ms());
    links_.send();
    if (task.kind == Task::kCompute) {
      start(task);
    } else if (task.kind == Task::kEvaluate) {
      evaluate(task);
    } else if (const std::optional<Task> early = push_pull_.early()) {
      start(*early);
    } else {
      wait();
    }
  }
  const JobEnd end = *control_.end();
  if (end.signal != 0) links_.let_go();
  return end;
}

void Trainer::hint_next() {
  if (const std::optional<Task> task = push_pull_.upcoming()) {
    compute_.hint(task->step, push_pull_.nodes(task->range));
  }
}

// Waits, as long as the task stands, and moves messages meanwhile.
void Trainer::await(const Task& task, int64_t number, const std::function<bool()>& here) {
  if (here()) {
    if (!trace_.on()) return;
    const double now_s = now_seconds();  // when it is needed, though it need not be waited for
    return trace_.add(Trace::kWait, task.step, number, now_s, now_s);
  }
  split_.enter(TimeSplit::kPull);
  const double begin_s = now_seconds();
  while (true) {
    exchange();
    // a pull that had to be begun anew may put the weights elsewhere
    if (control_.over() || !push_pull_.stands(task) ||
        push_pull_.weights_of(task).data() != weights_.data()) {
      throw Dropped{};
    }
    if (here()) break;
    wait();
  }
  split_.enter(TimeSplit::kCompute);
  trace_.add(Trace::kWait, task.step, number, begin_s, now_seconds());
}

// A task begins: what was between it and the one before was a wait.
void Trainer::end_wait(const Task& task) {
  if (trace_.on()) {
    trace_.add(Trace::kWait, task.step, Trace::kFirstWeights, waits_since_s_, now_seconds());
  }
}

// What forward of a task that begins early must ask; empty where all weights are here.
WeightsNeeded Trainer::needed_by(const Task& task) {
  if (push_pull_.all_here() && !trace_.on()) return {};
  return [this, &task](size_t tensor) {
    const TensorInfo& info = table_.tensors[tensor];
    await(task, static_cast<int64_t>(tensor), [&] {
      return push_pull_.here({info.offset, info.offset + info.size});
    });
  };
}

void Trainer::start(const Task& task) {
  end_wait(task);
  weights_ = push_pull_.weights_of(task);
  split_.enter(TimeSplit::kCompute);
  try {
    local_ ? compute_round(task) : compute(task);
  } catch (const Dropped&) {
    compute_.take_data_hash();
    split_.enter(TimeSplit::kWait);
  }
  if (trace_.on()) waits_since_s_ = now_seconds();
}

void Trainer::compute(const Task& task) {
  const bool clip = clips_pushes(job_);
  const std::vector<Range> nodes = push_pull_.nodes(task.range);
  compute_.begin(task.step, nodes, weights_);
  hint_next();
  bool begun = false;
  std::vector<float> losses;
  for (const Range& node : nodes) {
    const auto push_slice = [&](int slice, Payload part) {
      if (!begun) begin_push(task);
      begun = true;
      split_.enter(TimeSplit::kPush);
      const double begin_s = trace_.on() ? now_seconds() : 0.0;
      Payload encoded = encoder_.encode(node, slice, std::move(part));
      const auto bytes = std::ssize(encoded.bytes);
      push_pull_.add_part(slice, node, std::move(encoded));
      // weights may be coming already, and the servers wait to hear that they have arrived
      if (!clip) push_pull_.pulls_while_pushing() ? exchange() : links_.send();
      if (trace_.on()) trace_.add(Trace::kPush, task.step, slice, begin_s, now_seconds(), bytes);
      split_.enter(TimeSplit::kCompute);
    };
    try {
      if (!compute_.node(push_slice, losses, needed_by(task))) return;
    } catch (const Error& e) {
      if (e.code() == ErrorCode::kNotFinite && push_pull_.all_here()) note_failed(task);
      throw;
    }
  }
  double squares = 0.0;
  if (clip) {  // of what the servers will see
    const auto sum = encoder_.sent().empty() ? compute_.sum() : encoder_.sent();
    squares = compute_.squares(sum, task.range.size());
  }
  finish_push(task, losses, squares);
}

// A push says what it was computed on: the pull must be over.
void Trainer::begin_push(const Task& task) {
  await(task, Trace::kLastWeights, [this] { return push_pull_.all_here(); });
  push_pull_.begin_push(task.step, task.range);
}

void Trainer::finish_push(const Task& task, const std::vector<float>& losses, double squares) {
  split_.enter(TimeSplit::kPush);
  const double begin_s = trace_.on() ? now_seconds() : 0.0;
  push_pull_.end_push(losses, squares, now_ms(), compute_.take_data_hash().bytes());
  links_.send();
  if (trace_.on()) trace_.add(Trace::kPush, task.step, -1, begin_s, now_seconds());
  split_.enter(TimeSplit::kWait);
  split_.count_tasks(task.steps);
  control_.set_times(split_.totals());
}

void Trainer::note_failed(const Task& task) {
  wire::Applied push;
  push.set_step(task.step);
  push.set_lo(static_cast<int32_t>(task.range.lo));
  push.set_hi(static_cast<int32_t>(task.range.hi));
  for (const int64_t version : push_pull_.read_versions()) push.add_read_versions(version);
  control_.note_failed(std::move(push));
}

// local:H: all steps of a round, then one push. The first gradient is that at the pulled weights.
void Trainer::compute_round(const Task& task) {
  std::span<const float> weights = weights_;
  std::vector<float> losses;
  const auto keep = [](int, const Payload&) {};
  for (int64_t i = 0; i < task.steps; ++i) {
    compute_.begin(task.step + i, {task.range}, weights);
    if (i + 1 < task.steps) {
      compute_.hint(task.step + i + 1, {task.range});
    } else {
      hint_next();
    }
    if (!compute_.node(keep, losses, needed_by(task))) return;
    if (i == 0) {
      begin_push(task);
      local_->begin(task.range, push_pull_.weights());
      weights = local_->weights();
    }
    local_->step(task.step + i, compute_.sum());
  }
  local_->finish(push_pull_.weights(), [&](int slice, Payload part) {
    push_pull_.add_part(slice, task.range, encoder_.encode(task.range, slice, std::move(part)));
    links_.send();
  });
  finish_push(task, losses, 0.0);
}

void Trainer::evaluate(const Task& task) {
  end_wait(task);
  split_.enter(TimeSplit::kOther);
  control_.set_times(split_.totals());
  wire::EvalResult result;
  result.set_incarnation(incarnation_);
  result.set_step(task.step);
  for (int64_t chunk = task.range.lo; chunk < task.range.hi && !control_.over(); ++chunk) {
    const double begin_s = trace_.on() ? now_seconds() : 0.0;
    const ChunkResult r = evaluator_.run(push_pull_.evaluation_weights(), chunk);
    wire::ChunkResult* out = result.add_chunks();
    out->set_chunk(r.chunk);
    out->set_correct(r.correct);
    out->set_loss(r.loss);
    if (trace_.on()) trace_.add(Trace::kEvaluate, task.step, chunk, begin_s, now_seconds());
  }
  if (trace_.on()) waits_since_s_ = now_seconds();
  if (control_.over()) return;
  control_.report(std::move(result));
  push_pull_.finish_evaluation();
}

}  // namespace pushpull

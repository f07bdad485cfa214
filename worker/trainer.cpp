#include "worker/trainer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/job/job.h"
#include "common/net/address.h"
#include "models/pipeline.h"
#include "worker/compute/device_memory.h"
#include "worker/compute/stage_parts.h"

namespace pushpull {

namespace {

// Thrown out of a model's forward: the task must start again, or is void.
struct Dropped {};

// Returns the slices that the worker of a group pushes and pulls.
SlicePart slice_part(GroupStage& group, const TensorTable& table, const PushPullSetup& setup) {
  const SliceMap map(table, setup.job.slice_bytes, setup.servers);
  const StageParts parts = stage_parts(table, map, group.tensors_read(), group.stage());
  SlicePart out{group.stage(), {}, !setup.job.record.empty()};
  for (const Range& elements : parts.reads) {
    const Range slices = map.slices_with(elements);
    if (!out.pulled.empty() && slices.lo <= out.pulled.back().hi) {
      out.pulled.back().hi = std::max(out.pulled.back().hi, slices.hi);
    } else {
      out.pulled.push_back(slices);
    }
  }
  return out;
}

// A task that stage 0 tells the others. It is known by its number in the attempt: nobody else knows its step.
StageExchange::Part task_part(int stage, int64_t number) {
  return {stage, wire::StagePart::KIND_TASK, INT64_MAX, number};
}

Payload to_payload(const Task& task) {
  const auto numbers = std::make_shared<std::array<int64_t, 4>>();
  *numbers = {task.kind, task.step, task.range.lo, task.range.hi};
  return {numbers, std::as_bytes(std::span(*numbers))};
}

Task to_task(const Payload& payload) {
  std::array<int64_t, 4> numbers{};
  if (payload.bytes.size() != sizeof(numbers)) {
    throw Error(ErrorCode::kProtocol, "[stages] stage 0 has sent a task of " +
                                          std::to_string(payload.bytes.size()) + " bytes");
  }
  std::memcpy(numbers.data(), payload.bytes.data(), sizeof(numbers));
  const bool evaluates = numbers[0] == Task::kEvaluate;
  return {evaluates ? Task::kEvaluate : Task::kCompute, numbers[1], {numbers[2], numbers[3]}};
}

MeetingPlace meeting_place(const wire::Group& group) {
  if (group.attempt() == 0) return {};
  const wire::GroupMember& first = group.members(0);
  return {group.attempt(), parse_address(first.endpoint(), "group").host, first.port()};
}

}  // namespace

void take_stage(GroupStage& stage, const Job& job, const wire::State& state) {
  std::vector<int> local_stages;
  for (const wire::GroupMember& member : state.group().members()) {
    local_stages.push_back(std::max(1, member.local_stages()));
  }
  const int64_t shares = std::max(1, state.shares());
  stage.take_stage(state.group().stage(), local_stages,
                   (job.micro_batches() + shares - 1) / shares);
}

PushPullSetup trainer_setup(const JobView& view, const Dataset& dataset, Model& model) {
  PushPullSetup setup =
      push_pull_setup(view, model.table(), Evaluator(view.job, dataset, model).chunks());
  if (GroupStage* const group = model.group_stage()) {
    setup.part = slice_part(*group, model.table(), setup);
  }
  setup.memory = weights_memory(model);
  // a device copies directly from pages that are registered with it, and only `memory` is
  setup.anywhere = model.device_step() == nullptr;
  return setup;
}

Trainer::Trainer(const JobView& view, PushPullSetup setup, const Dataset& dataset, Model& model,
                 CoordinatorLink& coordinator, const TrainerMakers& make, Trace& trace)
    : coordinator_(coordinator),
      stage_(model.group_stage()),
      table_(model.table()),
      evaluation_(
          {view.job, dataset, model}, view.incarnation, [this] { return coordinator_.over(); },
          coordinator.activity(), &trace, make.group ? this : nullptr),
      push_pull_(std::move(setup)),
      links_(make.links(push_pull_)),
      group_(make.group ? make.group(*links_) : nullptr),
      compute_(
          view.job, dataset, model, push_pull_.slices(), [this] { return coordinator_.over(); },
          {links_->gradients(),
           [this] { return step_->holds_back_pushes() ? nullptr : links_->device_gradients(); }},
          group_ ? this : nullptr),
      encoder_(view.job, model.table(), push_pull_.slices()),
      step_(make.step(
          {compute_, encoder_, push_pull_.slices(), links_->gradients(), push_pull_.setup().part})),
      trace_(trace) {
  if (group_) news_ = view.state;
  compute_.set_rank(view.state.rank());
  compute_.set_trace(trace);
  compute_.set_activity(coordinator.activity());
  trace_.set_rank(view.state.rank());
  trace_.set_tensors(table_);
  trace_.set_slice_elements(push_pull_.slices().slice_elements());
  waits_since_s_ = now_seconds();
  links_->set_listener([this](const wire::State& news) {
    compute_.set_rank(news.rank());
    trace_.set_rank(news.rank());
    step_->on_state(news);
    if (group_) news_ = news;
  });
  if (!group_) return;
  stage_->set_idle([this] {
    exchange();
    check_current();
  });
}

Trainer::~Trainer() {
  if (group_) stage_->set_idle({});
}

// ---- the group ----

// A push that has begun ends in the attempt in which its task was computed.
void Trainer::follow_group() {
  if (!group_changed()) return;
  if (news_.group().attempt() == 0) {
    group_->end();
  } else {
    group_->begin(news_.group().attempt(), members_of(news_.group()));
    // a member that another one has replaced may have had other local stages
    take_stage(*stage_, push_pull_.setup().job, news_);
  }
  stage_->on_group(meeting_place(news_.group()));
  told_step_ = false;
  tasks_ = 0;
  told_task_ = {};
}

void Trainer::agree_on_step() {
  if (!group_ || group_->parts().attempt() == 0) return;
  GroupParts& parts = group_->parts();
  const std::optional<int64_t> proposed = push_pull_.proposed_step();
  if (!proposed) return;
  if (!std::exchange(told_step_, true)) {
    parts.start(*proposed);
    group_->exchange();
  }
  if (const auto agreed = parts.agreed()) push_pull_.begin_at(*agreed);
}

void Trainer::tell(const Task& task) {
  if (!group_ || !push_pull_.leads() || told_task_ == task) return;
  told_task_ = task;
  for (int stage = 1; stage < group_->parts().stages(); ++stage) {
    group_->parts().send(task_part(stage, tasks_), to_payload(task));
  }
  ++tasks_;
  group_->exchange();
}

std::optional<GroupParts::Wait> Trainer::wait_for_task() const {
  if (!group_ || !told_step_ || group_changed() || !push_pull_.awaits_task()) return std::nullopt;
  return GroupParts::Wait{task_part(0, tasks_)};
}

void Trainer::take_task() {
  const std::optional<GroupParts::Wait> wait = wait_for_task();
  if (!wait) return;
  const std::optional<Payload> payload = group_->parts().take(wait->part);
  if (!payload) return;
  ++tasks_;
  push_pull_.follow(to_task(*payload));
}

void Trainer::check_current() const {
  if (coordinator_.over() || group_changed() || !push_pull_.is_current(task_)) throw Dropped{};
}

void Trainer::wait_for_group(const GroupParts::Wait& wait) {
  coordinator_.activity().wait([&] { return group_->parts().waiting_for(wait); });
  links_->wait();
}

void Trainer::send(const Part& to, Payload floats) {
  GroupParts& parts = group_->parts();
  parts.send(to, std::move(floats));
  group_->exchange();
}

Payload Trainer::receive(const Part& from, size_t floats) {
  GroupParts& parts = group_->parts();
  const TimeSplit::Phase phase = split_.phase();
  std::optional<Payload> payload = parts.take(from);
  if (!payload) split_.enter(TimeSplit::kWait);
  // a wait takes in news of the coordinator, so the task is checked behind it
  while (!payload) {
    const GroupParts::Wait wait{.part = from};
    exchange(wait);
    check_current();
    payload = parts.take(from);
    if (!payload) wait_for_group(wait);
  }
  split_.enter(phase);
  check_size(from, *payload, floats);
  return *std::move(payload);
}

std::optional<Payload> Trainer::take(const Part& from, size_t floats) {
  std::optional<Payload> payload = group_->parts().take(from);
  if (payload) check_size(from, *payload, floats);
  return payload;
}

void Trainer::check_size(const Part& from, const Payload& payload, size_t floats) const {
  if (payload.float_count() == floats) return;
  throw Error(ErrorCode::kProtocol, "[stages] " + group_->parts().name(from.stage) + " has sent " +
                                        std::to_string(payload.float_count()) +
                                        " floats, and this worker expects " +
                                        std::to_string(floats));
}

// Each part is asked for in a turn of its own: they are parts of different workers.
void Trainer::wait(std::span<const Part> parts, bool computes) {
  const TimeSplit::Phase phase = split_.phase();
  if (!computes) split_.enter(TimeSplit::kWait);
  exchange();
  for (const Part& part : parts) group_->exchange(GroupParts::Wait{part});
  check_current();
  const auto is_here = [this](const Part& part) { return group_->parts().is_here(part); };
  if (std::ranges::none_of(parts, is_here)) {
    if (computes || parts.empty()) {
      links_->wait();
    } else {
      wait_for_group({parts.front()});
    }
  }
  split_.enter(phase);
}

// ---- messages ----

// Receives all messages, resends overdue ones and sends new ones. Members of the group are answered whatever
// this worker waits for.
void Trainer::exchange(const std::optional<GroupParts::Wait>& wait) {
  links_->exchange([this](int server, const Message& message) {
    step_->on_message(server, message);
    if (trace_.on()) note_weights(message);
    if (split_.phase() == TimeSplit::kWait && push_pull_.pull_answered()) {
      split_.enter(TimeSplit::kPull);
    }
  });
  if (group_) group_->exchange(wait);
}

void Trainer::note_progress() {
  const wire::Progress& now = push_pull_.progress();
  StepProgress progress{now.steps(), {}, {}};
  if (now.has_loss()) progress.loss = now.loss();
  if (now.has_learning_rate()) progress.learning_rate = now.learning_rate();
  compute_.note_progress(progress);
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
    train();
    JobEnd end = *coordinator_.end();
    if (end.next_term && group_) stage_->on_group({});
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

void Trainer::train() try {
  links_->attach();
  step_->start(*this);
  while (!coordinator_.over()) {
    exchange(wait_for_task());
    follow_group();
    agree_on_step();
    take_task();
    const Task task = push_pull_.next(links_->now_ms());
    links_->send();
    if (task.kind != Task::kEvaluate) report_held();
    if (task.kind == Task::kCompute) {
      compute(task);
    } else if (task.kind == Task::kEvaluate) {
      evaluate(task);
    } else if (const std::optional<Task> early = push_pull_.early()) {
      compute(*early);
    } else {
      if (task.kind == Task::kDone) keep_final(task.step);
      if (const auto told = wait_for_task()) {
        wait_for_group(*told);
      } else {
        wait();
      }
    }
  }
} catch (const JobOver&) {
}

// In strategies whose versions are no steps, the newest weights of a worker are older ones.
void Trainer::keep_final(int64_t end_step) {
  const auto is_final = [end_step](int64_t version) { return version == end_step; };
  if (std::exchange(final_kept_, true)) return;
  note_progress();
  if (!step_->own_weights().empty()) return compute_.finish(step_->own_weights());
  if (!push_pull_.setup().job.strategy.traits().step_versions) return;
  if (!std::ranges::all_of(push_pull_.read_versions(), is_final)) return;
  compute_.finish(push_pull_.weights());
}

// An evaluation of averages may end the job, and its program gets the weights of the job's end, which
// this worker then has not: they arrive with the next pull.
void Trainer::report_held() {
  if (held_.empty() || !push_pull_.all_here()) return;
  if (push_pull_.has_weights_of(held_.back().step())) compute_.finish(push_pull_.weights());
  for (wire::EvalResult& result : held_) coordinator_.report(std::move(result));
  held_.clear();
}

// ---- a training task ----

void Trainer::begin(const Task& task) {
  end_wait(task);
  task_ = task;
  tell(task);
}

void Trainer::compute(const Task& task) {
  begin(task);
  final_kept_ = false;
  // leases may go back a step, and each is computed to its end
  const bool ascend = !push_pull_.setup().job.strategy.traits().leases;
  if (group_ && ascend) group_->parts().forget_before(task.step);
  weights_ = weights_of(task);
  note_progress();
  split_.enter(TimeSplit::kCompute);
  try {
    if (const auto result = step_->run(task, *this)) finish_push(*result);
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

std::span<const float> Trainer::weights_of(const Task& task) const {
  const std::span<const float> own = step_->own_weights();
  return own.empty() ? push_pull_.weights_of(task) : own;
}

void Trainer::await_weights(int64_t number, const std::function<bool()>& here) {
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
    check_current();
    if (weights_of(task_).data() != weights_.data()) throw Dropped{};
    if (here()) break;
    wait();
  }
  note_progress();
  split_.enter(TimeSplit::kCompute);
  trace_.add(Trace::kWait, task_.step, number, begin_s, now_seconds());
}

WeightsNeeded Trainer::weights_needed() {
  if (push_pull_.all_here() && !trace_.on()) return {};
  return [this](size_t tensor) {
    const TensorInfo& info = table_.tensors[tensor];
    await_weights(static_cast<int64_t>(tensor), [&] {
      return push_pull_.here({info.offset, info.offset + info.size});
    });
  };
}

void Trainer::hint_next() {
  if (const std::optional<Task> task = push_pull_.upcoming()) {
    compute_.hint(task->step, push_pull_.nodes(task->range));
  }
}

void Trainer::await_all_weights() {
  await_weights(Trace::kLastWeights, [this] { return push_pull_.all_here(); });
}

void Trainer::begin_push() {
  await_all_weights();
  push_pull_.begin_push(task_.step, task_.range);
}

Payload Trainer::encoded(Range node, int slice, Payload part) {
  split_.enter(TimeSplit::kPush);
  Payload out = encoder_.encode(node, slice, std::move(part));
  split_.enter(TimeSplit::kCompute);
  return out;
}

void Trainer::push(Range node, int slice, Payload part, bool may_go) {
  split_.enter(TimeSplit::kPush);
  const double begin_s = trace_.on() ? now_seconds() : 0.0;
  const auto bytes = std::ssize(part.bytes);
  push_pull_.add_part(slice, node, std::move(part));
  // weights of the next pull may be arriving already, and servers wait for their acknowledgement
  if (may_go) push_pull_.pulls_while_pushing() ? exchange() : links_->send();
  if (trace_.on()) trace_.add(Trace::kPush, task_.step, slice, begin_s, now_seconds(), bytes);
  split_.enter(TimeSplit::kCompute);
}

void Trainer::await(const std::function<bool()>& done, const char* what) {
  while (true) {
    exchange();
    if (coordinator_.over()) throw JobOver{};
    if (done()) return;
    coordinator_.activity().wait([what] { return std::string(what); });
    links_->wait();
  }
}

void Trainer::finish_push(const Step::Result& result) {
  split_.enter(TimeSplit::kPush);
  const double begin_s = trace_.on() ? now_seconds() : 0.0;
  push_pull_.end_push(result.losses, result.squares, links_->now_ms(),
                      compute_.take_data_hash().bytes(), compute_.take_bad(), result.learning_rate);
  links_->send();
  if (trace_.on()) trace_.add(Trace::kPush, task_.step, -1, begin_s, now_seconds());
  step_->pushed(task_, *this);
  split_.enter(TimeSplit::kWait);
  split_.count_tasks(task_.steps);
  report_times();
}

void Trainer::report_times() {
  TimeTotals totals = split_.totals();
  totals.stages = compute_.stages();
  Step::Traffic traffic = step_->traffic();
  if (group_) {
    const GroupParts& parts = group_->parts();
    totals.first_stage = stage_->first_local();
    traffic.sent += parts.bytes_sent();
    traffic.received += parts.bytes_received();
    traffic.rejected += parts.rejected();
  }
  coordinator_.set_traffic(traffic.sent, traffic.received, traffic.rejected);
  coordinator_.set_times(totals);
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
  begin(task);
  split_.enter(TimeSplit::kOther);
  report_times();
  note_progress();
  const std::span<const float> own = step_->evaluated_weights();
  std::optional<wire::EvalResult> result;
  try {
    if (push_pull_.is_past_barrier()) {
      result = evaluation_.skip(task.step, task.range);
    } else {
      result = evaluation_.run(task.step, task.range,
                               own.empty() ? push_pull_.evaluation_weights() : own);
    }
  } catch (const Dropped&) {
  }
  if (trace_.on()) waits_since_s_ = now_seconds();
  if (!result) return;
  if (group_) result->set_attempt(group_->parts().attempt());
  if (result->chunks_size() > 0) {
    const PushPullSetup& setup = push_pull_.setup();
    const bool may_end = task.step == setup.barriers.end_step || setup.barriers.awaits_evaluations;
    const bool holds = may_end && setup.barriers.averages && own.empty() &&
                       setup.job.model == "external" && setup.job.strategy.traits().step_versions;
    if (holds) {
      held_.push_back(std::move(*result));
    } else {
      coordinator_.report(std::move(*result));
    }
  }
  push_pull_.finish_evaluation();
}

}  // namespace pushpull

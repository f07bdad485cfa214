#include "worker/exchange/exchange_loop.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/job/job_keys.h"
#include "common/net/model_wire.h"

namespace pushpull {

namespace {

// Longest wait for the acknowledgement of a push. The next pull then shows whether it was lost.
constexpr int64_t kAcknowledgeMs = 1000;
constexpr float kGradient = 1e-3F;

int64_t now_ns() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

TensorTable exchange_table(int64_t bytes) {
  TensorTable table;
  TensorInfo tensor;
  tensor.name = "exchange";
  tensor.shape = {bytes / static_cast<int64_t>(sizeof(float))};
  table.add(std::move(tensor));
  return table;
}

PushPullSetup setup_of(const ExchangeOptions& options, const JobView& view) {
  const auto elements = options.bytes / static_cast<int64_t>(sizeof(float));
  PushPullSetup setup = push_pull_setup(view, elements, 1);
  setup.acknowledge = options.apart;
  return setup;
}

}  // namespace

wire::Declare declare_exchange(int64_t bytes) {
  wire::Declare declare;
  to_wire(exchange_table(bytes), declare.mutable_tensors());
  declare.set_train_samples(int64_t{1} << 30);  // enough for all steps
  declare.set_test_samples(1);                  // the job ends with an evaluation
  declare.set_data_digest("no data");
  declare.set_numerics("no computing");
  return declare;
}

ExchangeLoop::ExchangeLoop(const ExchangeOptions& options, const JobView& view, Control& control,
                           zmq::context_t& context)
    : options_(options),
      setting_{find_job_key("transport")->get(view.job), to_string(view.job.optimizer.kind),
               view.state.data_endpoints_size()},
      control_(control),
      push_pull_(setup_of(options, view)),
      links_(view, push_pull_, control, context),
      table_(exchange_table(options.bytes)),
      encoder_(view.job, table_, push_pull_.slices()),
      pool_(static_cast<size_t>(push_pull_.slices().total()), links_.gradients()),
      gradient_(pool_.get()) {
  std::fill_n(gradient_.get(), pool_.floats(), kGradient);
  times_.reserve(static_cast<size_t>(view.state.end_step() - view.state.start_step()));
}

JobEnd ExchangeLoop::run() {
  links_.attach();
  while (!control_.over()) {
    links_.exchange([](int, const Message&) {});
    const Task task = push_pull_.next(now_ms());
    links_.send();
    switch (task.kind) {
      case Task::kCompute:
        end_step();
        push(task);
        break;
      case Task::kEvaluate:
        end_step();
        evaluate(task);
        break;
      default:
        control_.activity().wait([this] { return push_pull_.waiting_for(); });
        links_.wait();
    }
  }
  JobEnd end = *control_.end();
  if (end.success) write_times();
  return end;
}

// Waits while the coordinator hashes the initial weights, which would slow the first steps down.
void ExchangeLoop::let_servers_settle() {
  constexpr int64_t kMinMs = 200;
  constexpr int64_t kBytesPerMs = 250'000;
  const int64_t until_ms = now_ms() + kMinMs + options_.bytes / kBytesPerMs;
  while (now_ms() < until_ms && !control_.over()) {
    links_.wait();
  }
}

void ExchangeLoop::end_step() {
  if (in_step_) times_.back().end = now_ns();
  in_step_ = false;
}

void ExchangeLoop::push(const Task& task) {
  if (times_.empty()) let_servers_settle();
  times_.push_back({now_ns(), 0, 0});
  in_step_ = true;
  push_pull_.begin_push(task.step, task.range);
  const SliceMap& slices = push_pull_.slices();
  for (const Range& node : push_pull_.nodes(task.range)) {
    for (int slice = 0; slice < slices.slices(); ++slice) {
      const Range elements = slices.elements(slice);
      const std::span<const float> part(gradient_.get() + elements.lo,
                                        static_cast<size_t>(elements.size()));
      push_pull_.add_part(slice, node,
                          encoder_.encode(node, slice, {gradient_, std::as_bytes(part)}));
      push_pull_.pulls_while_pushing() ? links_.exchange([](int, const Message&) {})
                                       : links_.send();
    }
  }
  const std::vector<float> losses(static_cast<size_t>(task.range.size() * task.steps), 0.0F);
  push_pull_.end_push(losses, 0.0, now_ms());
  links_.send();
  control_.activity().add_computed(task.range.size() * task.steps);
  if (options_.apart) wait_for_push();
}

void ExchangeLoop::wait_for_push() {
  const int64_t deadline_ms = now_ms() + kAcknowledgeMs;
  while (!push_pull_.pushes_arrived() && !control_.over() && now_ms() < deadline_ms) {
    links_.wait();
    links_.exchange([](int, const Message&) {});
  }
  times_.back().pushed = now_ns();
}

// Reports no correct samples, since the job trains no model.
void ExchangeLoop::evaluate(const Task& task) {
  wire::EvalResult result;
  result.set_step(task.step);
  for (int64_t chunk = task.range.lo; chunk < task.range.hi; ++chunk) {
    result.add_chunks()->set_chunk(chunk);
  }
  control_.report(std::move(result));
  push_pull_.finish_evaluation();
}

void ExchangeLoop::write_times() const {
  std::ofstream file(options_.times);
  file << setting_.transport << ' ' << setting_.optimizer << ' ' << setting_.servers << '\n';
  for (const ExchangeTimes& step : times_) {
    file << step.begin << ' ' << step.pushed << ' ' << step.end << '\n';
  }
  file.close();
  if (!file) throw Error(ErrorCode::kIo, "[exchange] cannot write the times to " + options_.times);
}

}  // namespace pushpull

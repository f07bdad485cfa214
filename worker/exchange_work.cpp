#include "worker/exchange_work.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/job/job.h"
#include "common/job/job_keys.h"
#include "common/net/model_wire.h"
#include "datasets/dataset.h"
#include "models/model.h"
#include "worker/exchange/socket_links.h"
#include "worker/trainer.h"

namespace pushpull {

namespace {

// Longest wait for the acknowledgement of a push. The next pull then shows whether it was lost.
constexpr int64_t kAcknowledgeMs = 1000;
constexpr float kGradient = 1e-3F;

int64_t now_ns() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

// The times of a run's steps.
class StepTimes {
 public:
  void begin() { all_.push_back({now_ns(), 0, 0}); }
  void pushed() { all_.back().pushed = now_ns(); }
  // Ends the last step, if it has not ended.
  void end() {
    if (!all_.empty() && all_.back().end == 0) all_.back().end = now_ns();
  }
  void reserve(int64_t steps) { all_.reserve(static_cast<size_t>(steps)); }
  const std::vector<ExchangeTimes>& all() const { return all_; }

 private:
  std::vector<ExchangeTimes> all_;
};

class NoData final : public Dataset {
 public:
  int64_t size(Split split) const override {
    constexpr int64_t kForAllSteps = int64_t{1} << 30;
    constexpr int64_t kForAllWorkers =
        1024;  // the evaluation at the end ends each worker's last step
    return split == Split::kTrain ? kForAllSteps : kForAllWorkers;
  }
  const FieldTable& fields() const override { return fields_; }
  const std::string& digest() const override { return digest_; }
  void read(const Request& /*request*/, float* /*block*/) const override {}

 private:
  const FieldTable fields_;
  const std::string digest_ = "no data";
};

// One tensor, which is not computed with.
class OneTensor final : public Model {
 public:
  // times: whose last step ends when its weights are evaluated. Borrows it.
  OneTensor(int64_t bytes, StepTimes& times) : times_(times) {
    TensorInfo tensor;
    tensor.name = "exchange";
    tensor.shape = {bytes / static_cast<int64_t>(sizeof(float))};
    table_.add(std::move(tensor));
  }

  float train(std::span<const float> /*weights*/, const Samples& /*samples*/,
              std::span<float> /*gradients*/, const GradientReady& /*ready*/,
              const WeightsNeeded& /*needed*/) override {
    PP_ASSERT(false);
    return 0.0F;
  }
  void evaluate(std::span<const float> /*weights*/, const Samples& /*samples*/,
                std::span<HeadSums> /*sums*/) override {
    times_.end();
  }
  std::string numerics() const override { return "no computing"; }
  void choose(const std::string& /*choices*/) override {}

 private:
  StepTimes& times_;
};

// Pushes the same gradient at each step.
class ExchangeStep final : public Step {
 public:
  ExchangeStep(const StepParts& parts, bool apart, CoordinatorLink& coordinator, StepTimes& times)
      : slices_(parts.slices),
        apart_(apart),
        coordinator_(coordinator),
        times_(times),
        gradient_(parts.gradients(static_cast<size_t>(slices_.total()))) {
    std::fill_n(gradient_.get(), slices_.total(), kGradient);
  }

  std::optional<Result> run(const Task& task, StepHost& host) override {
    if (times_.all().empty()) let_servers_settle();
    host.begin_push();
    times_.end();
    times_.begin();
    for (const Range& node : host.nodes()) {
      for (int slice = 0; slice < slices_.slices(); ++slice) {
        const Range elements = slices_.elements(slice);
        const std::span<const float> part(gradient_.get() + elements.lo,
                                          static_cast<size_t>(elements.size()));
        host.push(node, slice, host.encoded(node, slice, {gradient_, std::as_bytes(part)}), true);
      }
    }
    coordinator_.activity().add_computed(task.range.size());
    return Result{std::vector<float>(static_cast<size_t>(task.range.size())), 0.0};
  }

  void pushed(const Task& /*task*/, StepHost& host) override {
    if (!apart_) return;
    const int64_t deadline_ms = now_ms() + kAcknowledgeMs;
    host.await([&] { return host.unacknowledged() == 0 || now_ms() >= deadline_ms; },
               "an acknowledgement");
    times_.pushed();
  }

 private:
  // Waits while the coordinator hashes the initial weights, which would slow the first steps down.
  void let_servers_settle() const {
    constexpr int64_t kMinMs = 200;
    constexpr int64_t kFloatsPerMs = 62'500;
    const int64_t until_ms = now_ms() + kMinMs + slices_.total() / kFloatsPerMs;
    while (now_ms() < until_ms && !coordinator_.over()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  const SliceMap slices_;
  const bool apart_;
  CoordinatorLink& coordinator_;
  StepTimes& times_;
  const std::shared_ptr<float[]> gradient_;
};

void write_times(const std::string& path, const JobView& view, const StepTimes& times) {
  std::ofstream file(path);
  file << find_job_key("transport")->get(view.job) << ' ' << to_string(view.job.optimizer.kind)
       << ' ' << view.state.data_endpoints_size() << '\n';
  for (const ExchangeTimes& step : times.all()) {
    file << step.begin << ' ' << step.pushed << ' ' << step.end << '\n';
  }
  file.close();
  if (!file) throw Error(ErrorCode::kIo, "[exchange] cannot write the times to " + path);
}

}  // namespace

ExchangeWork::ExchangeWork(const WorkerParts& parts, ExchangeOptions options)
    : parts_(parts), options_(std::move(options)) {
  const Strategy& strategy = parts.control.job().strategy;
  if (strategy.kind == StrategyKind::kSync) return;
  throw Error(ErrorCode::kUsage, "[exchange] the job's strategy is " + strategy.to_string() +
                                     ": `pushpull bench` measures sync; start the servers with "
                                     "strategy = sync");
}

wire::Declare ExchangeWork::declare() {
  StepTimes none;
  const OneTensor model(options_.bytes, none);
  const NoData data;
  wire::Declare declare;
  to_wire(model.table(), declare.mutable_tensors());
  declare.set_train_samples(data.size(Split::kTrain));
  declare.set_test_samples(data.size(Split::kTest));
  declare.set_data_digest(data.digest());
  declare.set_numerics(model.numerics());
  return declare;
}

JobEnd ExchangeWork::run(const JobView& view) {
  StepTimes times;
  times.reserve(view.state.end_step() - view.state.start_step());
  const NoData data;
  OneTensor model(options_.bytes, times);
  PushPullSetup setup = trainer_setup(view, data, model);
  setup.acknowledge = options_.apart;
  TrainerMakers make;
  make.links = [&](PushPull& push_pull) {
    return std::make_unique<SocketLinks>(view, push_pull, parts_.control, parts_.context);
  };
  make.step = [&](const StepParts& parts) {
    return std::make_unique<ExchangeStep>(parts, options_.apart, parts_.control, times);
  };
  JobEnd end =
      Trainer(view, std::move(setup), data, model, parts_.control, make, parts_.trace).run();
  if (end.success) write_times(options_.times, view, times);
  return end;
}

}  // namespace pushpull

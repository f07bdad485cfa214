// The bubble of a pipeline whose stages take the same time: each pass only sleeps, 10 ms forward and
// backward together, so that what is measured is the hand-over between stages. Counters: bubble, the
// share of the time in which a stage waits; ideal, (p - 1) / (m + p - 1) for p stages and m
// micro-batches (Huang et al., GPipe, arXiv:1811.06965).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/job/job.h"
#include "datasets/dataset.h"
#include "models/stages.h"
#include "worker/compute/pipeline_source.h"

namespace {

using namespace pushpull;

constexpr auto kForward = std::chrono::microseconds(3333);
constexpr auto kBackward = std::chrono::microseconds(6667);
constexpr int64_t kTensor = 1024;  // elements; each stage has one

class Sleeping final : public PipelineStage {
 public:
  Sleeping(int64_t stages, int64_t stage) : stages_(stages), stage_(stage) {}

  std::vector<size_t> tensors() const override { return {static_cast<size_t>(stage_)}; }
  int64_t layers() const override { return 1; }
  size_t slots() const override { return static_cast<size_t>(stages_ - stage_); }
  std::vector<StageAction> actions(int64_t micro_batches) const override {
    return stage_actions("1f1b", stages_, stage_, micro_batches);
  }
  size_t input_floats() const override { return stage_ > 0 ? kTensor : 0; }
  size_t output_floats() const override { return stage_ + 1 < stages_ ? kTensor : 0; }
  bool forward_writes() const override { return false; }
  std::unique_ptr<Batch> prepare(const Samples& /*samples*/) const override {
    return std::make_unique<Batch>();
  }
  void forward(const Pass& /*pass*/, const float* /*input*/, float* /*output*/,
               const WeightsNeeded& /*needed*/) override {
    std::this_thread::sleep_for(kForward);
  }
  void backward(const Pass& pass, const float* /*gradient*/, float* /*input*/,
                const GradientReady& ready) override {
    std::this_thread::sleep_for(kBackward);
    std::fill_n(pass.gradients.begin() + stage_ * kTensor, kTensor, 1.0F);
    ready(static_cast<size_t>(stage_));
  }
  float loss(const Pass& /*pass*/) const override { return 1.0F; }
  void evaluate(std::span<const float> /*weights*/, const Samples& /*samples*/,
                const float* /*input*/, float* /*output*/, std::span<HeadSums> /*sums*/) override {}

 private:
  const int64_t stages_;
  const int64_t stage_;
};

class SleepingPipeline final : public Pipeline {
 public:
  explicit SleepingPipeline(int64_t stages) {
    for (int64_t s = 0; s < stages; ++s) stages_.emplace_back(stages, s);
  }
  size_t stages() const override { return stages_.size(); }
  PipelineStage& stage(size_t index) override { return stages_.at(index); }

 private:
  std::vector<Sleeping> stages_;
};

// range(0): stages; range(1): micro-batches.
void pipeline(benchmark::State& state) {
  const int64_t stages = state.range(0);
  const int64_t micro_batches = state.range(1);
  const Job job =
      parse_job_text("dataset = dummy\nglobal-batch = " + std::to_string(micro_batches) +
                         "\nmicro-batch = 1\nsteps = 1000\n",
                     "bench");
  const std::unique_ptr<Dataset> dataset = open_dataset(job);
  TensorTable table;
  for (int64_t s = 0; s < stages; ++s) {
    TensorInfo tensor;
    tensor.name = std::to_string(s);
    tensor.shape = {kTensor};
    table.add(std::move(tensor));
  }
  SleepingPipeline model(stages);
  MicroBatches batches(job, *dataset, [] { return false; });
  PipelineSource source(model, table, SliceMap(table.total, 4096, 1), batches, heap_floats);
  const std::vector<float> weights(static_cast<size_t>(table.total));
  const GradientSum::SliceReady ready = [](int, const Payload&) {};
  const WeightsNeeded none;
  int64_t step = 0;
  for (auto _ : state) {
    std::vector<float> losses;
    const Range range{0, micro_batches};
    source.node({.step = step,
                 .range = range,
                 .first = 0,
                 .weights = weights,
                 .stage_weights = {},
                 .next_step = step + 1,
                 .next = range,
                 .ready = ready,
                 .needed = none},
                losses);
    ++step;
  }
  double bubble = 0.0;
  for (const StageTotals& stage : source.stages()) {
    bubble += (1.0 - stage.busy / stage.span) / static_cast<double>(stages);
  }
  state.counters["bubble"] = bubble;
  state.counters["ideal"] =
      static_cast<double>(stages - 1) / static_cast<double>(micro_batches + stages - 1);
}

}  // namespace

BENCHMARK(pipeline)
    ->ArgNames({"stages", "micro_batches"})
    ->ArgsProduct({{2, 4}, {4, 8, 16}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

BENCHMARK_MAIN();

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

class Sleeping final : public Pipeline {
 public:
  explicit Sleeping(int64_t stages) : stages_(stages) {}

  size_t stages() const override { return static_cast<size_t>(stages_); }
  std::vector<size_t> tensors(size_t stage) const override { return {stage}; }
  int64_t layers(size_t /*stage*/) const override { return 1; }
  size_t slots(size_t stage) const override { return stages() - stage; }
  std::vector<StageAction> actions(size_t stage, int64_t micro_batches) const override {
    return stage_actions("1f1b", stages_, static_cast<int64_t>(stage), micro_batches);
  }
  size_t boundary_floats(size_t stage) const override { return stage + 1 < stages() ? kTensor : 0; }
  std::unique_ptr<Batch> prepare(const Samples& /*samples*/) const override {
    return std::make_unique<Batch>();
  }
  void forward(size_t /*stage*/, const Pass& /*pass*/, const float* /*input*/, float* /*output*/,
               const WeightsNeeded& /*needed*/) override {
    std::this_thread::sleep_for(kForward);
  }
  void backward(size_t stage, const Pass& pass, const float* /*gradient*/, float* /*input*/,
                const GradientReady& ready) override {
    std::this_thread::sleep_for(kBackward);
    std::fill_n(pass.gradients.begin() + static_cast<int64_t>(stage) * kTensor, kTensor, 1.0F);
    ready(stage);
  }
  float loss(const Pass& /*pass*/) const override { return 1.0F; }

 private:
  const int64_t stages_;
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
  Sleeping model(stages);
  MicroBatches batches(job, *dataset, [] { return false; });
  PipelineSource source(model, table, SliceMap(table.total, 4096, 1), batches, heap_floats);
  const std::vector<float> weights(static_cast<size_t>(table.total));
  const GradientSum::SliceReady ready = [](int, const Payload&) {};
  const WeightsNeeded none;
  int64_t step = 0;
  for (auto _ : state) {
    std::vector<float> losses;
    const Range range{0, micro_batches};
    source.node({step, range, 0, weights, step + 1, range, ready, none}, losses);
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

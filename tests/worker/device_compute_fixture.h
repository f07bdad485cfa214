// A node of a step, computed on a fake device and on the CPU: jobs, models that record the calls
// they receive, and results to compare.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/job/job.h"
#include "models/graph_model.h"
#include "tests/device/fake_device.h"
#include "tests/models/initial_weights.h"
#include "tests/models/queued_backend.h"
#include "worker/compute/compute.h"
#include "worker/compute/device_team.h"
#include "worker/compute/evaluate.h"

namespace pushpull {

using device::FakeDevice;
using device::FakeOptions;
using device::Fault;

struct Dropped {};

inline Job small_job(const std::string& keys = "") {
  return parse_job_text(
      "dataset = dummy\ninput = 1x4x4\nclasses = 5\nhidden = 40,30\ntrain-samples = "
      "96\nglobal-batch = 24\n"
      "micro-batch = 3\nsteps = 4\nslice-bytes = 4096\n" +
          keys,
      "test");
}

struct Outcome {
  bool whole = false;
  std::map<std::pair<size_t, int>, std::vector<float>> slices;  // by node and slice
  std::vector<float> sum;
  std::vector<float> losses;
  std::string data;
  friend bool operator==(const Outcome&, const Outcome&) = default;
  // short, for failed tests
  friend std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
    return out << outcome.slices.size() << " slices, " << outcome.losses.size() << " losses";
  }
};

// Counts the calls that a device receives.
struct StepCalls {
  std::atomic<int> begins = 0;
  std::atomic<int> ahead = 0;  // staged after the last run of a node, before its end
  std::atomic<int> unstaged = 0;
  bool keeps_what_is_staged = false;  // injected fault: unstage does nothing
};

class CountingStep final : public DeviceStep {
 public:
  CountingStep(DeviceStep& step, StepCalls& asked) : step_(step), asked_(asked) {}
  std::shared_ptr<device::Device> device() const override { return step_.device(); }
  void begin(std::span<const float> weights) override {
    ++asked_.begins;
    step_.begin(weights);
  }
  void stage(const Samples& samples) override {
    ++staged_;
    step_.stage(samples);
  }
  void unstage() override {
    if (asked_.keeps_what_is_staged) return;
    asked_.unstaged += staged_;
    staged_ = 0;
    step_.unstage();
  }
  void run(float* gradients, const GradientReady& enqueued, const WeightsNeeded& needed) override {
    --staged_;
    step_.run(gradients, enqueued, needed);
  }
  const device::Event& gradient(size_t tensor) const override { return step_.gradient(tensor); }
  void write_after(const device::Event& event) override { step_.write_after(event); }
  std::span<const float> wait() override {
    asked_.ahead += staged_;
    return step_.wait();
  }
  void keep_times() override { step_.keep_times(); }
  std::span<const DeviceSpan> spans() const override { return step_.spans(); }
  const device::Event& clock() const override { return step_.clock(); }

 private:
  DeviceStep& step_;
  StepCalls& asked_;
  int staged_ = 0;  // staged and not yet run
};

// A model with its device steps wrapped in CountingStep.
class CountingModel final : public Model {
 public:
  CountingModel(std::unique_ptr<Model> model, StepCalls& asked) : model_(std::move(model)) {
    table_ = model_->table();
    heads_ = model_->heads();
    for (DeviceStep* step : model_->device_steps()) {
      steps_.push_back(std::make_unique<CountingStep>(*step, asked));
    }
  }
  float train(std::span<const float> weights, const Samples& samples, std::span<float> gradients,
              const GradientReady& ready, const WeightsNeeded& needed) override {
    return model_->train(weights, samples, gradients, ready, needed);
  }
  void evaluate(std::span<const float> weights, const Samples& samples,
                std::span<HeadSums> sums) override {
    model_->evaluate(weights, samples, sums);
  }
  std::vector<DeviceStep*> device_steps() override {
    std::vector<DeviceStep*> steps;
    for (const auto& step : steps_) steps.push_back(step.get());
    return steps;
  }
  std::string numerics() const override { return model_->numerics(); }
  void choose(const std::string& choices) override { model_->choose(choices); }

 private:
  std::unique_ptr<Model> model_;
  std::vector<std::unique_ptr<CountingStep>> steps_;
};

// The nodes of a worker that are computed on the same weights.
struct Work {
  int64_t step = 0;
  std::vector<Range> nodes;
};

// The computing part of a worker.
class Bench {
 public:
  // devices: empty for the CPU
  Bench(const Job& job, const std::vector<std::shared_ptr<FakeDevice>>& devices)
      : job_(job), dataset_(open_dataset(job_)) {
    std::vector<std::unique_ptr<Model>> models;
    for (const auto& device : devices) {
      models.push_back(make_model_on(make_queued_backend(device), job_, dataset_->fields()));
    }
    if (models.empty()) {
      model_ = make_model(job_, dataset_->fields());
    } else if (models.size() == 1) {
      model_ = std::move(models.front());
    } else {
      model_ = std::make_unique<TeamModel>(std::move(models));
    }
    model_ = std::make_unique<CountingModel>(std::move(model_), asked);
    map_ = std::make_unique<SliceMap>(model_->table().total, job_.slice_bytes, 2);
    compute_ = std::make_unique<Compute>(job_, *dataset_, *model_, *map_, [this] { return over; });
    weights = initial_weights(model_->table(), 5);
  }

  // Returns the sums of the model's first head over a chunk of the test split.
  HeadSums evaluate(int64_t chunk) {
    return Evaluator(job_, *dataset_, *model_).run(weights, chunk).front();
  }
  Outcome node(int64_t step, Range range, const WeightsNeeded& needed = {}) {
    return work({step, {range}}, {}, needed);
  }
  // hint: without nodes if there is none
  Outcome work(const Work& now, const Work& hint = {}, const WeightsNeeded& needed = {}) {
    Outcome out;
    size_t node = 0;
    const auto ready = [&](int slice, const Payload& part) {
      if (slice == refused) throw Dropped{};
      const auto [place, is_new] =
          out.slices.emplace(std::pair(node, slice),
                             std::vector<float>(part.floats(), part.floats() + part.float_count()));
      EXPECT_TRUE(is_new);
    };
    compute_->begin(now.step, now.nodes, weights);
    if (!hint.nodes.empty()) compute_->hint(hint.step, hint.nodes);
    out.whole = true;
    for (; out.whole && node < now.nodes.size(); ++node) {
      out.whole = compute_->node(ready, out.losses, needed);
      if (!out.whole) break;
      out.sum.insert(out.sum.end(), compute_->sum().begin(), compute_->sum().end());
      spoil_weights();
    }
    const HashSum hash = compute_->take_data_hash();
    out.data = hash.bytes();
    return out;
  }
  // Begins a term of the job: the model stays, as in a worker's life.
  void begin_term() {
    compute_ = std::make_unique<Compute>(job_, *dataset_, *model_, *map_, [this] { return over; });
  }
  void trace_to(Trace& trace) { compute_->set_trace(trace); }
  // Drops the data hash, as a worker does that gives up a step.
  void forget() { compute_->take_data_hash(); }
  size_t tensors() const { return model_->table().tensors.size(); }

  StepCalls asked;
  bool over = false;
  // Spoils the host's weights after the first node, for tests in which each device has a share of
  // it: weights on a device must not be read again.
  bool spoils = false;
  int refused = -1;  // this slice gives up the step; -1 = none
  std::vector<float> weights;

 private:
  void spoil_weights() {
    if (spoils) std::fill(weights.begin(), weights.end(), std::nanf(""));
  }

  Job job_;
  std::unique_ptr<Dataset> dataset_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<SliceMap> map_;
  std::unique_ptr<Compute> compute_;
};

inline std::vector<std::shared_ptr<FakeDevice>> fake(FakeOptions options, int devices = 1) {
  std::vector<std::shared_ptr<FakeDevice>> out;
  for (; std::ssize(out) < devices; ++options.seed) {
    out.push_back(std::make_shared<FakeDevice>(options));
  }
  return out;
}

inline constexpr std::array kNodes = {Range{0, 8}, Range{0, 1}, Range{4, 6}, Range{0, 3},
                                      Range{0, 7}};

}  // namespace pushpull

// Two stages on one backend's device, at the same time: the bits of the undivided model there.
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "models/pipeline.h"
#include "models/staged_model.h"
#include "tests/models/backend_case.h"

namespace pushpull {
namespace {

constexpr int64_t kBatches = 4;

// What one stage passes to another.
class Passed {
 public:
  void put(std::vector<float> floats) {
    const std::lock_guard lock(mutex_);
    floats_.push_back(std::move(floats));
    changed_.notify_all();
  }
  std::vector<float> take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !floats_.empty(); });
    std::vector<float> floats = std::move(floats_.front());
    floats_.pop_front();
    return floats;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<float>> floats_;
};

struct Leaf {
  std::unique_ptr<PipelineStage::Batch> batch;
  Result result;
};

// Computes all micro-batches, each stage on a thread.
void run_stages(Pipeline& pipeline, std::span<const float> weights, std::vector<Leaf>& leaves) {
  Passed activations;
  Passed gradients;
  const auto run = [&](size_t s) {
    PipelineStage& stage = pipeline.stage(s);
    for (const StageAction& action : stage.actions(kBatches)) {
      Leaf& leaf = leaves[static_cast<size_t>(action.micro_batch)];
      const PipelineStage::Pass pass{weights, leaf.result.gradients, leaf.batch.get(),
                                     static_cast<size_t>(action.micro_batch) % stage.slots()};
      std::vector<float> out(action.forward ? stage.output_floats() : stage.input_floats());
      if (action.forward && s == 0) {
        stage.forward(pass, nullptr, out.data(), {});
        activations.put(std::move(out));
      } else if (action.forward) {
        stage.forward(pass, activations.take().data(), nullptr, {});
        leaf.result.loss = stage.loss(pass);
      } else if (s == 0) {
        stage.backward(pass, gradients.take().data(), nullptr, [](size_t) {});
      } else {
        stage.backward(pass, nullptr, out.data(), [](size_t) {});
        gradients.put(std::move(out));
      }
    }
  };
  std::thread first([&] { run(0); });
  run(1);
  first.join();
}

class StagesOnBackend : public OnBackend {};

TEST_P(StagesOnBackend, TwoAtOnceHaveTheBitsOfTheUndividedModel) {
  for (const char* name : {"mlp", "convnet"}) {
    const Case c = on({.model = name, .input = {1, 8, 8}, .micro_batch = 4, .hidden = {32, 24}});
    Job job = c.job();
    job.global_batch = kBatches * job.micro_batch;
    const auto whole = make_model_on(GetParam().make(1), job, c.fields());
    const auto staged =
        make_staged_model_on([](int64_t) { return GetParam().make(1); }, job, c.fields(), 2);
    EXPECT_EQ(staged->numerics(), whole->numerics());
    EXPECT_EQ(staged->choices(), whole->choices());
    const std::vector<float> weights = initial_weights(whole->table(), 3);
    std::vector<Leaf> leaves(kBatches);
    for (size_t m = 0; m < leaves.size(); ++m) {
      leaves[m].result.gradients.assign(weights.size(), -77.0F);
      leaves[m].batch = staged->pipeline()->stage(1).prepare(Inputs(c, m).view());
    }
    run_stages(*staged->pipeline(), weights, leaves);
    for (size_t m = 0; m < leaves.size(); ++m) {
      EXPECT_EQ(leaves[m].result, train(*whole, weights, Inputs(c, m))) << name << ", " << m;
    }
    EXPECT_EQ(evaluate(*staged, weights, Inputs(c), 3), evaluate(*whole, weights, Inputs(c), 3));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, StagesOnBackend, testing::ValuesIn(all_backends()), case_name);

}  // namespace
}  // namespace pushpull

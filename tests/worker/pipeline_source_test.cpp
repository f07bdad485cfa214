// Gradients of a model in stages: the bits of the undivided model, and the ways in which a node ends
// early.
#include "worker/compute/pipeline_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/job/job.h"
#include "datasets/dataset.h"
#include "models/models.h"
#include "worker/compute/compute.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

struct Pushed {
  std::map<int, std::vector<float>> slices;
  std::vector<float> losses;
  friend bool operator==(const Pushed&, const Pushed&) = default;
};

class PipelineTest : public testing::Test {
 protected:
  void set_job(const std::string& keys) {
    job_ = parse_job_text(
        "dataset = dummy\ninput = 1x8x8\nclasses = 5\nglobal-batch = 36\nmicro-batch = 3\n"
        "steps = 10\nslice-bytes = 4096\n" +
            keys,
        "test");
    dataset_ = open_dataset(job_);
  }
  // stages: 0 = the undivided model.
  void make(int64_t stages) {
    compute_.reset();
    model_ = stages == 0 ? make_model(job_, dataset_->fields())
                         : make_staged_model(job_, dataset_->fields(), stages);
    map_ = std::make_unique<SliceMap>(model_->table().total, job_.slice_bytes, 1);
    const FloatAllocator counted = [this](size_t floats) {
      ++gradients_;
      return heap_floats(floats);
    };
    compute_ = std::make_unique<Compute>(
        job_, *dataset_, *model_, *map_, [this] { return over_.load(); },
        PushedMemory{counted, nullptr});
    compute_->set_rank(0);
    weights_.resize(static_cast<size_t>(model_->table().total));
    for (size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] = 0.02F + 0.001F * static_cast<float>(i % 17);
    }
  }
  // Computes these nodes of two steps.
  Pushed push(const std::vector<Range>& nodes, const WeightsNeeded& needed = {}) {
    Pushed out;
    for (int64_t step = 0; step < 2; ++step) {
      compute_->begin(step, nodes, weights_);
      for (size_t n = 0; n < nodes.size(); ++n) {
        const auto ready = [&](int slice, const Payload& part) {
          const int key = static_cast<int>(100 * step) + 1000 * static_cast<int>(n) + slice;
          EXPECT_TRUE(out.slices
                          .emplace(key, std::vector<float>(part.floats(),
                                                           part.floats() + part.float_count()))
                          .second);
        };
        EXPECT_TRUE(compute_->node(ready, out.losses, needed));
      }
    }
    return out;
  }

  Job job_;
  std::unique_ptr<Dataset> dataset_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<SliceMap> map_;
  std::unique_ptr<Compute> compute_;
  std::vector<float> weights_;
  std::atomic<bool> over_ = false;
  std::atomic<int> gradients_ = 0;  // allocated
};

TEST_F(PipelineTest, HasTheBitsOfTheUndividedModel) {
  const std::vector<std::vector<Range>> divisions{
      {{0, 12}}, {{0, 8}, {8, 12}}, {{0, 1}}, {{3, 4}, {4, 6}}};
  for (const char* model : {"model = mlp\nhidden = 16,8,8\n", "model = convnet\n"}) {
    for (const char* schedule : {"1f1b", "gpipe"}) {
      set_job(std::string(model) + "schedule = " + schedule + "\n");
      for (const std::vector<Range>& nodes : divisions) {
        make(0);
        const Pushed want = push(nodes);
        for (const int64_t stages : {1, 2, 3}) {
          make(stages);
          EXPECT_EQ(push(nodes), want) << model << schedule << ", " << stages << " stages";
        }
      }
    }
  }
}

TEST_F(PipelineTest, StagesWaitForTheirOwnWeights) {
  set_job("model = mlp\nhidden = 16,8,8\n");
  make(0);
  const Pushed want = push({{0, 12}});
  make(3);
  std::vector<size_t> order;
  const WeightsNeeded needed = [&](size_t tensor) { order.push_back(tensor); };
  EXPECT_EQ(push({{0, 12}}, needed), want);
  ASSERT_EQ(order.size(), 2 * model_->table().tensors.size());
  EXPECT_TRUE(
      std::is_sorted(order.begin(), order.begin() + static_cast<int64_t>(order.size()) / 2));
}

struct Stopped {};

// A task that is dropped while its weights arrive can be computed again.
TEST_F(PipelineTest, WhatTheTrainerThrowsEndsTheNode) {
  set_job("model = mlp\nhidden = 16,8,8\n");
  make(3);
  EXPECT_THROW(push({{0, 12}},
                    [](size_t tensor) {
                      if (tensor == 3) throw Stopped{};
                    }),
               Stopped);
  compute_->begin(0, {{0, 12}}, weights_);
  std::vector<float> losses;
  const auto stop = [](int /*slice*/, const Payload& /*part*/) { throw Stopped{}; };
  EXPECT_THROW(compute_->node(stop, losses), Stopped);
  const Pushed again = push({{0, 12}});
  make(0);
  EXPECT_EQ(again, push({{0, 12}}));
}

TEST_F(PipelineTest, EndsSoonOnceTheWorkIsOver) {
  set_job("model = mlp\nhidden = 16,8,8\n");
  make(2);
  over_ = true;
  compute_->begin(0, {{0, 12}}, weights_);
  std::vector<float> losses;
  EXPECT_FALSE(compute_->node([](int, const Payload&) {}, losses));
}

TEST_F(PipelineTest, AValueThatIsNotFiniteIsNamed) {
  set_job("model = mlp\nhidden = 16,8,8\n");
  make(2);
  weights_.assign(weights_.size(), std::numeric_limits<float>::infinity());
  // before a gradient that is not finite: the message of the undivided model
  try {
    push({{3, 4}, {4, 12}});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kNotFinite);
    EXPECT_THAT(e.what(), HasSubstr("the loss of worker 0 at step 0, micro-batch 3 is"));
  }
  weights_.assign(weights_.size(), 0.01F);
  const Pushed again = push({{0, 12}});
  EXPECT_EQ(again.losses.size(), 24U) << "the next node is not given up";
}

TEST_F(PipelineTest, ForwardTakesNoGradients) {
  set_job("model = mlp\nhidden = 16,8,8\nschedule = gpipe\n");
  make(1);
  push({{0, 12}});
  EXPECT_LE(gradients_, 5) << "the depth of the tree and one";
}

TEST_F(PipelineTest, TheTraceNamesMicroBatchesOfTheStep) {
  set_job("model = mlp\nhidden = 16,8,8\n");
  make(2);
  const std::string file = testing::TempDir() + "stages-trace-" + std::to_string(getpid());
  std::map<std::string, int> seen;
  {
    Trace trace(file);
    compute_->set_trace(trace);
    push({{3, 4}, {4, 6}});
    for (const auto& event : nlohmann::json::parse(trace.to_json())) {
      if (event["ph"] == "X") ++seen[std::string(event["cat"]) + ": " + std::string(event["name"])];
    }
    compute_.reset();
  }
  std::filesystem::remove(file);
  std::map<std::string, int> want = {{"compute: part from 3", 2}, {"compute: part from 4", 2}};
  for (const char* pass : {"forward ", "backward "}) {
    for (const char* m : {"3", "4", "5"}) want[std::string("device: ") + pass + m] = 4;
  }
  EXPECT_EQ(seen, want) << "two steps, two stages";
}

TEST_F(PipelineTest, FiguresOfTheStages) {
  set_job("model = mlp\nhidden = 16,8,8\n");
  make(3);
  push({{0, 12}});
  const std::vector<StageTotals> stages = compute_->stages();
  ASSERT_EQ(stages.size(), 3U);
  EXPECT_EQ(stages[0].slots_max, 3);
  EXPECT_EQ(stages[2].slots_max, 1);
  EXPECT_EQ(stages[0].bytes_out, 2 * 12 * 3 * 16 * 4);
  EXPECT_EQ(stages[0].bytes_in, stages[0].bytes_out) << "as many bytes of gradients come back";
  EXPECT_EQ(stages[1].bytes_in, stages[0].bytes_out + stages[2].bytes_out);
  for (const StageTotals& stage : stages) {
    EXPECT_GT(stage.busy, 0.0);
    EXPECT_LE(stage.busy, stage.span);
  }
}

TEST_F(PipelineTest, SkippingBadGradientsIsRefused) {
  set_job("model = mlp\nhidden = 16,8,8\non-bad-gradient = skip\n");
  EXPECT_THROW(make(2), Error);
}

}  // namespace
}  // namespace pushpull

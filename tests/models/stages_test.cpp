// Graphs divided into stages: the bits of the undivided graph, whatever the division, and the division
// itself.
#include "models/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/job/job.h"
#include "models/graph_model.h"
#include "models/models.h"
#include "models/staged_model.h"
#include "tests/models/fixture.h"
#include "tests/models/random_block.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kSeed = 5;

std::unique_ptr<Model> whole_of(Graph graph) {
  return std::make_unique<GraphModel>(
      std::make_unique<PlannedGraph>(ops::make_cpu_backend(1), std::move(graph)), kSeed);
}

std::unique_ptr<Model> staged_of(const Graph& graph, const std::vector<Range>& nodes) {
  std::vector<std::unique_ptr<PlannedStage>> stages;
  for (size_t s = 0; s < nodes.size(); ++s) {
    stages.push_back(make_planned_stage(ops::make_cpu_backend(1), stage_graph(graph, nodes, s), 2,
                                        {"1f1b", std::ssize(nodes), static_cast<int64_t>(s)},
                                        kSeed));
  }
  return std::make_unique<StagedModel>(std::move(stages));
}

struct Computed {
  float loss = 0.0F;
  std::vector<float> gradients;
  std::vector<size_t> ready;  // sorted
  std::vector<HeadSums> sums;
};

Computed compute(Model& model, const Graph& graph) {
  std::mt19937 random(3);
  const std::vector<float> block = random_block(graph, random);
  std::vector<float> weights(static_cast<size_t>(graph.table.total));
  // positive, as a running variance is
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = 0.05F + 0.2F * std::abs(std::sin(static_cast<float>(i)));
  }
  std::vector<int64_t> indices(static_cast<size_t>(graph.samples));
  Samples samples;
  samples.step = 3;
  samples.micro_batch = 2;
  samples.indices = indices;
  samples.block = block;
  Computed out;
  out.gradients.assign(weights.size(), std::nanf(""));
  out.loss = model.train(weights, samples, out.gradients,
                         [&](size_t tensor) { out.ready.push_back(tensor); });
  std::ranges::sort(out.ready);
  out.sums.resize(model.heads().size());
  samples.step = -1;
  model.evaluate(weights, samples, out.sums);
  return out;
}

void expect_stages_keep_bits(const Graph& graph) {
  const Computed want = compute(*whole_of(graph), graph);
  const auto pieces = static_cast<int64_t>(graph.cuts.size()) + 1;
  ASSERT_GE(pieces, 3);
  for (const int64_t stages : std::set<int64_t>{1, 2, 3, pieces}) {
    for (const char* balance : {"auto", "parameters"}) {
      const auto nodes = stage_nodes(graph, stages, Balance::parse(balance));
      const Computed got = compute(*staged_of(graph, nodes), graph);
      EXPECT_EQ(got.loss, want.loss) << stages << " stages, " << balance;
      EXPECT_EQ(got.gradients, want.gradients) << stages << " stages, " << balance;
      EXPECT_EQ(got.ready, want.ready) << stages << " stages, " << balance;
      EXPECT_EQ(got.sums, want.sums) << stages << " stages, " << balance;
    }
  }
}

Job staged_job() {
  Job job;
  job.micro_batch = 3;
  job.embed = 8;
  job.layers = 3;
  job.heads = 2;
  job.dropout = 0.25;
  job.attention_dropout = 0.25;
  return job;
}

TEST(Stages, GptHasTheBitsOfTheUndividedModel) {
  Job job = staged_job();
  job.tie_embeddings = true;
  expect_stages_keep_bits(gpt_graph(job, token_fields(6, 11)));
  job.tie_embeddings = false;
  expect_stages_keep_bits(gpt_graph(job, token_fields(6, 11)));
}

TEST(Stages, BertHasTheBitsOfTheUndividedModel) {
  expect_stages_keep_bits(bert_graph(staged_job(), question_fields(6, 11, 3)));
}

TEST(Stages, ImageModelsHaveTheBitsOfTheUndividedModel) {
  Job job = staged_job();
  job.hidden = {8, 7, 6};
  expect_stages_keep_bits(mlp_graph(job, image_fields({1, 4, 4}, 5)));
  expect_stages_keep_bits(convnet_graph(job, image_fields({1, 8, 8}, 5)));
  job.stem = "cifar";
  expect_stages_keep_bits(resnet18_graph(job, image_fields({3, 8, 8}, 5)));
}

std::vector<int64_t> costs(const Graph& graph, int64_t stages, const std::string& balance) {
  std::vector<int64_t> out;
  const auto nodes = stage_nodes(graph, stages, Balance::parse(balance));
  for (size_t s = 0; s < nodes.size(); ++s) {
    out.push_back(cost_of(stage_graph(graph, nodes, s)).parameters);
  }
  return out;
}

TEST(Stages, AreBalancedByOperationsOrByParameters) {
  Job job = staged_job();
  job.hidden = {4, 4, 4, 4};
  const Graph graph = mlp_graph(job, image_fields({1, 4, 4}, 2));
  // layers of 68, 20, 20, 20 and 10 parameters
  EXPECT_THAT(costs(graph, 2, "parameters"), ElementsAre(68, 70));
  EXPECT_THAT(costs(graph, 3, "parameters"), ElementsAre(68, 20, 50));
  EXPECT_THAT(costs(graph, 2, "1,4"), ElementsAre(68, 70));
  EXPECT_THAT(costs(graph, 2, "3,2"), ElementsAre(108, 30));
}

TEST(Stages, OfTiedWeightsTheFirstOwnsThem) {
  Job job = staged_job();
  job.tie_embeddings = true;
  const Graph graph = gpt_graph(job, token_fields(6, 11));
  const std::vector<int64_t> parameters = costs(graph, 4, "auto");
  int64_t sum = 0;
  for (const int64_t p : parameters) sum += p;
  EXPECT_EQ(sum, graph.table.total);
}

std::string refusal(const Graph& graph, int64_t stages, const std::string& balance) {
  try {
    stage_nodes(graph, stages, Balance::parse(balance));
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUsage);
    return e.what();
  }
  return "none";
}

TEST(Stages, WhatDoesNotFitIsRefusedWithBothNumbers) {
  Job job = staged_job();
  job.hidden = {4, 4};
  const Graph graph = mlp_graph(job, image_fields({1, 4, 4}, 2));
  EXPECT_THAT(refusal(graph, 4, "auto"), HasSubstr("stages = 4, but this model has 3 pieces"));
  EXPECT_THAT(refusal(graph, 0, "auto"), HasSubstr("choose 1 to 3"));
  EXPECT_THAT(refusal(graph, 2, "1,1"), HasSubstr("the sum 2; 2 stages of this model need"));
  EXPECT_THAT(refusal(graph, 2, "3"), HasSubstr("1 numbers"));
  for (const char* balance : {"", "fast", "1,0", "1,,2"}) {
    EXPECT_THAT(refusal(graph, 2, balance), HasSubstr("[stages] balance")) << balance;
  }
}

// Runs the schedules of all stages against each other: each pass waits for its input.
void expect_complete(const std::string& schedule, int64_t stages, int64_t micro_batches) {
  const std::string text = schedule + ", " + std::to_string(stages) + " stages, " +
                           std::to_string(micro_batches) + " micro-batches";
  std::vector<std::vector<StageAction>> all;
  for (int64_t s = 0; s < stages; ++s) {
    all.push_back(stage_actions(schedule, stages, s, micro_batches));
    ASSERT_EQ(std::ssize(all.back()), 2 * micro_batches) << text;
  }
  const auto size = static_cast<size_t>(stages);
  std::vector<size_t> next(size);
  std::vector<int64_t> forwards(size);
  std::vector<int64_t> backwards(size);
  bool moved = true;
  while (moved) {
    moved = false;
    for (size_t s = 0; s < size; ++s) {
      while (next[s] < all[s].size()) {
        const StageAction action = all[s][next[s]];
        const bool is_fed = action.forward  ? s == 0 || forwards[s - 1] > action.micro_batch
                            : s + 1 == size ? forwards[s] > action.micro_batch
                                            : backwards[s + 1] > action.micro_batch;
        if (!is_fed) break;
        int64_t& count = action.forward ? forwards[s] : backwards[s];
        ASSERT_EQ(action.micro_batch, count) << text << ": passes are not in order";
        ++count;
        ++next[s];
        moved = true;
        ASSERT_LE(forwards[s] - backwards[s],
                  stage_slots(schedule, stages, static_cast<int64_t>(s), micro_batches))
            << text;
      }
    }
  }
  for (size_t s = 0; s < size; ++s) EXPECT_EQ(next[s], all[s].size()) << text << ": hangs";
}

TEST(StageSchedule, EveryOneEndsWithinItsSlots) {
  for (const char* schedule : {"1f1b", "gpipe"}) {
    for (int64_t stages = 1; stages <= 8; ++stages) {
      for (int64_t micro_batches = 1; micro_batches <= 32; ++micro_batches) {
        expect_complete(schedule, stages, micro_batches);
      }
    }
  }
  EXPECT_EQ(stage_slots("1f1b", 4, 0, 32), 4);
  EXPECT_EQ(stage_slots("1f1b", 4, 3, 32), 1);
  EXPECT_EQ(stage_slots("gpipe", 4, 3, 32), 32);
}

TEST(StageSchedule, OneForwardOneBackward) {
  std::string text;
  for (const StageAction& a : stage_actions("1f1b", 3, 1, 4)) {
    text += (a.forward ? "F" : "B") + std::to_string(a.micro_batch) + " ";
  }
  EXPECT_EQ(text, "F0 F1 B0 F2 B1 F3 B2 B3 ");
}

TEST(Stages, AreBalancedByTheCostsOfTheirPieces) {
  EXPECT_EQ(balanced({1, 1, 1, 1, 4}, 2), (std::vector<int64_t>{4, 1}));
  EXPECT_EQ(balanced({4, 1, 1, 1, 1}, 2), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(balanced({1, 1, 1}, 3), (std::vector<int64_t>{1, 1, 1}));
  EXPECT_EQ(balanced({2, 2}, 1), (std::vector<int64_t>{2}));
}

TEST(Stages, OfEqualCostsHaveTheBubblesOfTheFormula) {
  for (const char* schedule : {"1f1b", "gpipe"}) {
    for (const double bubble : stage_bubbles(schedule, {{1.0, 2.0}, {1.0, 2.0}}, 4)) {
      EXPECT_NEAR(bubble, 1.0 / 5, 1e-12) << schedule;
    }
  }
  const std::vector<double> unlike = stage_bubbles("1f1b", {{1.0, 1.0}, {3.0, 3.0}}, 4);
  EXPECT_GT(unlike[0], 0.6) << "it waits for the slower one";
  EXPECT_LT(unlike[1], 0.1);
}

}  // namespace
}  // namespace pushpull

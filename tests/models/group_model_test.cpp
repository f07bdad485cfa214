// A model that a group of workers divides: what it describes, and when it plans.
#include "models/group_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/job/job.h"
#include "models/layers.h"
#include "models/models.h"
#include "models/stages.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

Job group_job(const std::string& model) {
  Job job;
  job.model = model;
  job.micro_batch = 2;
  job.global_batch = 16;
  job.hidden = {8, 7, 6};
  job.embed = 8;
  job.layers = 4;
  job.heads = 2;
  return job;
}

FieldTable fields_of(const std::string& model) {
  if (model == "gpt") return token_fields(6, 11);
  if (model == "bert") return question_fields(6, 11, 3);
  return image_fields({3, 32, 32}, 5);
}

// Each model can be divided wherever it may be cut.
TEST(GroupModel, StagesBeginInTheOrderOfTheTable) {
  for (const ModelInfo& info : model_list()) {
    for (const bool tied : {false, true}) {
      Job job = group_job(info.name);
      job.tie_embeddings = tied;
      const FieldTable fields = fields_of(info.name);
      const TensorTable whole = figures_of_model(job, fields).table;
      int64_t most = 0;
      for (job.stages = 2;; ++job.stages) {
        std::unique_ptr<Model> model;
        try {
          model = make_group_model(job, fields);
        } catch (const Error& e) {
          EXPECT_THAT(e.what(), HasSubstr(" pieces: choose"));
          break;
        }
        most = job.stages;
        EXPECT_EQ(std::ssize(model->table().stage_begins()), job.stages - 1) << info.name;
        TensorTable table = model->table();
        for (TensorInfo& tensor : table.tensors) tensor.begins_stage = false;
        EXPECT_EQ(table, whole);
      }
      EXPECT_GE(most, 3) << info.name;
    }
  }
}

TEST(GroupModel, PlansOnlyTheStageThatItTakes) {
  Job job = group_job("gpt");
  job.stages = 3;
  const std::unique_ptr<Model> model = make_group_model(job, fields_of("gpt"));
  GroupStage& group = *model->group_stage();
  EXPECT_EQ(model->heads().size(), 1U);
  EXPECT_EQ(model->numerics(), make_model(job, fields_of("gpt"))->numerics());
  EXPECT_EQ(group.stages(), 3);
  EXPECT_EQ(group.stage(), -1);
  EXPECT_EQ(model->arena_bytes(), 0U);
  EXPECT_THROW(group.planned(), Error);

  group.take_stage(0, {1, 1, 1}, 8);
  EXPECT_EQ(group.planned().front()->slots(), 3U);
  EXPECT_EQ(group.planned().front()->input_floats(), 0U);
  const size_t arena = model->arena_bytes();
  EXPECT_GT(arena, 0U);
  group.take_stage(0, {1, 1, 1}, 2);
  EXPECT_EQ(model->arena_bytes(), arena) << "there are slots enough";
  const size_t output = group.planned().front()->output_floats();
  group.take_stage(1, {1, 1, 1}, 1);
  EXPECT_EQ(group.stage(), 1);
  EXPECT_EQ(group.planned().front()->slots(), 1U);
  EXPECT_EQ(group.planned().front()->input_floats(), output);
  EXPECT_THROW(group.planned().front()->actions(8), Error) << "more slots than were planned";
  group.take_stage(1, {1, 1, 1}, 8);
  EXPECT_EQ(group.planned().front()->slots(), 2U);
  EXPECT_EQ(group.planned().front()->actions(8), stage_actions("1f1b", 3, 1, 8));
  group.take_stage(2, {1, 1, 1}, 8);
  EXPECT_EQ(group.planned().front()->output_floats(), 0U);
}

TEST(GroupModel, DividesItsStageAgain) {
  Job job = group_job("gpt");
  job.stages = 2;
  const std::unique_ptr<Model> model = make_group_model(job, fields_of("gpt"), 2);
  GroupStage& group = *model->group_stage();
  EXPECT_EQ(group.local_stages(), 2);
  group.take_stage(0, {2, 1}, 8);
  std::vector<PipelineStage*> planned = group.planned();
  ASSERT_EQ(planned.size(), 2U);
  EXPECT_EQ(planned[0]->actions(8), stage_actions("1f1b", 3, 0, 8));
  EXPECT_EQ(planned[1]->actions(8), stage_actions("1f1b", 3, 1, 8));
  EXPECT_EQ(planned[0]->output_floats(), planned[1]->input_floats());
  std::vector<size_t> both;
  for (PipelineStage* stage : planned) {
    for (const size_t tensor : stage->tensors()) both.push_back(tensor);
  }
  EXPECT_EQ(both, group.tensors_read()[0]);
  // another worker behind
  group.take_stage(0, {2, 3}, 4);
  EXPECT_EQ(group.planned()[0]->slots(), 5U) << "for the largest node so far";
  EXPECT_EQ(group.planned()[1]->actions(8), stage_actions("1f1b", 5, 1, 8));
  planned = group.planned();
  group.take_stage(0, {2, 1}, 8);
  EXPECT_EQ(group.planned(), planned) << "there are slots enough";
  EXPECT_EQ(group.planned()[1]->actions(8), stage_actions("1f1b", 3, 1, 8));
  group.take_stage(1, {3, 2}, 8);
  EXPECT_EQ(group.first_local(), 3);
  EXPECT_EQ(group.planned()[1]->slots(), 1U);
}

TEST(GroupModel, AStageWithTooFewPiecesIsNamed) {
  Job job = group_job("gpt");
  job.stages = 2;
  job.balance = "4,2";
  try {
    make_group_model(job, fields_of("gpt"), 3);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUsage);
    EXPECT_THAT(e.what(), HasSubstr("--stages 3: stage 1 of the job's 2 has 2 pieces"));
  }
}

// Everything else is poison, before and afterwards.
TEST(GroupModel, AStageReadsAndWritesItsTensorsOnly) {
  Job job = group_job("gpt");
  job.stages = 3;
  const FieldTable fields = fields_of("gpt");
  const std::unique_ptr<Model> model = make_group_model(job, fields);
  GroupStage& group = *model->group_stage();
  const std::vector<int64_t> indices{0, 1};
  const std::vector<float> block(BatchLayout(fields, job.micro_batch).words());
  Samples samples;
  samples.indices = indices;
  samples.block = block;
  for (int stage = 0; stage < 3; ++stage) {
    group.take_stage(stage, {1, 1, 1}, 1);
    PipelineStage& planned = *group.planned().front();
    const auto total = static_cast<size_t>(model->table().total);
    std::vector<float> weights(total, std::nanf(""));
    std::vector<float> gradients = weights;
    std::vector<bool> reads(total);
    for (const size_t tensor : group.tensors_read().at(static_cast<size_t>(stage))) {
      const TensorInfo& info = model->table().tensors[tensor];
      std::fill_n(weights.begin() + info.offset, info.size, 0.1F);
      std::fill_n(reads.begin() + info.offset, info.size, true);
      // of a stage behind
      if (stage == 0) std::fill_n(gradients.begin() + info.offset, info.size, 0.0F);
    }
    const std::unique_ptr<PipelineStage::Batch> batch = planned.prepare(samples);
    std::vector<float> input(planned.input_floats(), 0.5F);
    std::vector<float> output(planned.output_floats());
    planned.forward({weights, {}, batch.get(), 0}, input.data(), output.data(), {});
    planned.backward({weights, gradients, batch.get(), 0}, output.data(), input.data(),
                     [](size_t) {});
    for (size_t i = 0; i < total; ++i) EXPECT_EQ(std::isnan(gradients[i]), !reads[i]) << i;
  }
}

std::string refusal(Graph graph) {
  std::vector<Range> nodes = stage_nodes(graph, 2, {});
  try {
    const GroupModel model(
        std::move(graph), std::move(nodes), [](int64_t) { return ops::make_cpu_backend(1); },
        "1f1b", 1);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUsage);
    return e.what();
  }
  return "none";
}

TEST(GroupModel, TensorsOutOfOrderAreRefused) {
  GraphBuilder graph("test", "drawn", 2, image_fields({1, 2, 2}, 4));
  Value x = linear(graph, "before", graph.input("pixels"), 4);
  const Param second = graph.param("second", {4, 4}, uniform_of(4));
  const Param first = graph.param("first", {4, 4}, uniform_of(4));
  x = linear_on(graph, "a", x, first);
  graph.cut();
  graph.head({.name = "label"}, linear_on(graph, "b", x, second), "label");
  EXPECT_THAT(refusal(graph.take()),
              HasSubstr("[stages] stage 0 reads tensor first, but tensor second before it"));
}

TEST(GroupModel, AStageWithoutTensorsOfItsOwnIsRefused) {
  GraphBuilder graph("test", "drawn", 2, image_fields({1, 2, 2}, 4));
  Value x = linear(graph, "before", graph.input("pixels"), 4);
  const Param shared = graph.param("shared", {4, 4}, uniform_of(4));
  x = linear_on(graph, "a", x, shared);
  graph.cut();
  graph.head({.name = "label"}, linear_on(graph, "b", x, shared), "label");
  EXPECT_THAT(refusal(graph.take()), HasSubstr("[stages] stage 1 of 2 has no tensors of its own"));
}

}  // namespace
}  // namespace pushpull

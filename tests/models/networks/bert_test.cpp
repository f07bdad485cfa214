// The model bert: its tensors, its gradients against differences of the loss, its heads, and what the
// mask hides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/job/job.h"
#include "models/graph_model.h"
#include "models/models.h"
#include "tests/common/thrown.h"
#include "tests/device/fake_device.h"
#include "tests/models/networks/slopes.h"
#include "tests/models/queued_backend.h"

namespace pushpull {
namespace {

using test::RandomBatch;
using test::train;
using test::Trained;
using test::weights_of;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kLength = 6;
constexpr int64_t kWords = 13;

Job bert_job() {
  Job job;
  job.model = "bert";
  job.dataset = "dummy-qa";
  job.layers = 2;
  job.heads = 2;
  job.embed = 8;
  job.micro_batch = 3;
  return job;
}

FieldTable bert_fields() { return question_fields(kLength, kWords, 5); }

std::unique_ptr<Model> make_bert(const Job& job) { return make_model(job, bert_fields()); }

// The first sample has no answer; the second one ends with two tokens of padding.
RandomBatch answers_of(int64_t samples) {
  RandomBatch batch(bert_fields(), samples);
  int32_t* mask = batch.ints("mask");
  for (int64_t i = 0; i < samples * kLength; ++i) mask[i] = 1;
  mask[2 * kLength - 1] = 0;
  mask[2 * kLength - 2] = 0;
  batch.ints("start")[0] = kNoTarget;
  batch.ints("end")[0] = kNoTarget;
  return batch;
}

TEST(Bert, HasTheTensorsOfHuggingFace) {
  std::map<std::string, std::vector<int64_t>> shapes;
  Job job = bert_job();
  job.positions = 9;
  const auto model = make_bert(job);
  for (const TensorInfo& tensor : model->table().tensors) shapes[tensor.name] = tensor.shape;
  EXPECT_EQ(shapes.size(), 5U + 2U * 16U + 2U + 4U * 2U);
  EXPECT_EQ(shapes["bert.embeddings.word_embeddings.weight"], (std::vector<int64_t>{13, 8}));
  EXPECT_EQ(shapes["bert.embeddings.position_embeddings.weight"], (std::vector<int64_t>{9, 8}));
  EXPECT_EQ(shapes["bert.embeddings.token_type_embeddings.weight"], (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(shapes["bert.embeddings.LayerNorm.bias"], (std::vector<int64_t>{8}));
  EXPECT_EQ(shapes["bert.encoder.layer.1.attention.self.query.weight"],
            (std::vector<int64_t>{8, 8}));
  EXPECT_EQ(shapes["bert.encoder.layer.1.attention.output.LayerNorm.weight"],
            (std::vector<int64_t>{8}));
  EXPECT_EQ(shapes["bert.encoder.layer.0.intermediate.dense.weight"],
            (std::vector<int64_t>{32, 8}));
  EXPECT_EQ(shapes["bert.encoder.layer.0.output.dense.weight"], (std::vector<int64_t>{8, 32}));
  EXPECT_EQ(shapes["bert.pooler.dense.weight"], (std::vector<int64_t>{8, 8}));
  EXPECT_EQ(shapes["qa_outputs.weight"], (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(shapes["reg_end.weight"], (std::vector<int64_t>{1, 8}));
  EXPECT_EQ(shapes["classifier.bias"], (std::vector<int64_t>{5}));
}

TEST(Bert, OfBaseSizeHasItsParameters) {
  Job job = bert_job();
  job.layers = 12;
  job.heads = 12;
  job.embed = 768;
  job.positions = 512;
  const Graph graph = bert_graph(job, question_fields(16, 30'522, 5));
  // Hugging Face's bert-base-uncased has 109,482,240; the heads add 2 + 1 + 1 + 5 rows of 769
  EXPECT_EQ(graph.table.trainable(), 109'482'240 + 9 * 769);
}

TEST(Bert, OnlyBiasesAndNormsHaveNoDecay) {
  const auto model = make_bert(bert_job());
  for (const TensorInfo& tensor : model->table().tensors) {
    const bool is_bias = tensor.name.ends_with(".bias");
    const bool is_norm = tensor.name.find("LayerNorm") != std::string::npos;
    EXPECT_EQ(tensor.decay, !is_bias && !is_norm) << tensor.name;
  }
}

TEST(Bert, GradientsAreSlopesOfTheLoss) {
  const auto model = make_bert(bert_job());
  test::expect_slopes(*model, answers_of(3).view());
}

TEST(Bert, GradientsAreSlopesWithDropoutSmoothingAndWeights) {
  Job job = bert_job();
  job.dropout = 0.25;
  job.attention_dropout = 0.25;
  job.label_smoothing = 0.1;
  job.head_weights = HeadWeights::parse("start:0.5,end-position:3,class:0.25");
  const auto model = make_bert(job);
  test::expect_slopes(*model, answers_of(3).view());
}

TEST(Bert, MeasuresItsHeads) {
  const auto model = make_bert(bert_job());
  std::vector<std::string> heads;
  for (const HeadInfo& head : model->heads()) {
    heads.push_back(head.name + ": " + to_string(head.metric));
  }
  EXPECT_THAT(heads, ElementsAre("start: exact match", "end: accuracy",
                                 "start-position: mean squared error",
                                 "end-position: mean squared error", "class: accuracy"));
  std::vector<HeadSums> sums(heads.size());
  model->evaluate(weights_of(*model), answers_of(3).view(), sums);
  EXPECT_EQ(sums[0].counted, 2);  // the first sample has no answer
  EXPECT_EQ(sums[1].counted, 2);
  EXPECT_EQ(sums[2].counted, 3);
  EXPECT_EQ(sums[4].counted, 3);
  EXPECT_LE(sums[0].metric, sums[1].metric);  // both ends must be right
}

TEST(Bert, LossIsTheWeightedSumOfItsHeads) {
  Job job = bert_job();
  const auto loss_with = [&](const std::string& weights) {
    job.head_weights = HeadWeights::parse(weights);
    const auto model = make_bert(job);
    return train(*model, weights_of(*model), answers_of(3).view()).loss;
  };
  const std::string none = "start:0,end:0,start-position:0,end-position:0,class:0";
  EXPECT_EQ(loss_with(none), 0.0F);
  const float start = loss_with("end:0,start-position:0,end-position:0,class:0");
  const float rest = loss_with("start:0");
  EXPECT_GT(start, 0.0F);
  EXPECT_NEAR(loss_with(""), start + rest, 1e-5);
  EXPECT_NEAR(loss_with("start:2"), 2 * start + rest, 1e-5);
}

TEST(Bert, HasTheSameBitsInTheOrderOfADevice) {
  Job job = bert_job();
  job.dropout = 0.25;
  job.label_smoothing = 0.1;
  job.head_weights = HeadWeights::parse("start:0.5,end-position:3,class:0.25");
  const auto here = make_bert(job);
  const auto there = make_model_on(make_queued_backend(std::make_shared<device::FakeDevice>(), 1),
                                   job, bert_fields());
  const std::vector<float> weights = weights_of(*here);
  for (const int64_t step : {1, 2, 3, 4}) {
    const RandomBatch batch = answers_of(3);
    EXPECT_TRUE(train(*there, weights, batch.view(step, 0)) ==
                train(*here, weights, batch.view(step, 0)))
        << step;
  }
}

TEST(Bert, MaskHidesPaddingFromOtherTokens) {
  Job job = bert_job();
  const auto model = make_bert(job);
  const std::vector<float> weights = weights_of(*model);
  RandomBatch batch = answers_of(3);
  std::vector<HeadSums> before(model->heads().size());
  std::vector<HeadSums> after(model->heads().size());
  model->evaluate(weights, batch.view(), before);
  int32_t& padding = batch.ints("ids")[2 * kLength - 1];
  padding = (padding + 1) % static_cast<int32_t>(kWords);
  model->evaluate(weights, batch.view(), after);
  EXPECT_EQ(before[4], after[4]);            // [CLS] does not see it
  EXPECT_NE(before[0].loss, after[0].loss);  // its own score is one of the row's
}

TEST(Bert, RefusesWhatDoesNotFit) {
  const auto expect_refusal = [](const Job& job, const FieldTable& table, const char* words) {
    EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { make_model(job, table); }), HasSubstr(words));
  };
  Job job = bert_job();
  job.heads = 3;
  expect_refusal(job, bert_fields(), "heads = 3 does not divide embed = 8");
  job = bert_job();
  job.positions = 5;
  expect_refusal(job, bert_fields(), "has 5 positions, fewer than a sample's 6");
  job = bert_job();
  job.head_weights = HeadWeights::parse("stat:1");
  expect_refusal(job, bert_fields(),
                 "head-weights names 'stat'; the heads of this model are start, end, "
                 "start-position, end-position, class");
  job = bert_job();
  job.dataset = "digits";
  expect_refusal(job, image_fields({1, 8, 8}, 10), "dataset = digits has pixels, label");
}

TEST(Bert, ArenaIsLittleLargerThanWhatIsAliveAtOnce) {
  Job job = bert_job();
  job.layers = 4;
  job.embed = 32;
  const auto model = make_bert(job);
  const MemoryPlan& plan = dynamic_cast<GraphModel&>(*model).graph().memory_plan();
  EXPECT_LE(static_cast<double>(plan.bytes), 1.1 * static_cast<double>(plan.largest_live));
}

}  // namespace
}  // namespace pushpull

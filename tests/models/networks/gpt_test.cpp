// The model gpt: its tensors, its gradients against differences of the loss, and what a graph
// promises: each gradient once and after its last writer, dropout by (seed, step, micro-batch).
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
#include "tests/device/fake_device.h"
#include "tests/models/networks/slopes.h"
#include "tests/models/queued_backend.h"

namespace pushpull {
namespace {

using test::RandomBatch;
using test::train;
using test::Trained;
using test::weights_of;
using testing::HasSubstr;

constexpr int64_t kPositions = 6;
constexpr int64_t kVocabulary = 13;

Job gpt_job() {
  Job job;
  job.model = "gpt";
  job.dataset = "text";
  job.layers = 2;
  job.heads = 2;
  job.embed = 8;
  job.micro_batch = 3;
  return job;
}

// A micro-batch of random tokens; one target of the second sample does not count.
RandomBatch batch_of(int64_t samples) {
  RandomBatch batch(token_fields(kPositions, kVocabulary), samples);
  if (samples > 1) batch.ints("target")[kPositions + 2] = -1;
  return batch;
}

std::unique_ptr<Model> make(const Job& job) {
  return make_model(job, token_fields(kPositions, kVocabulary));
}

void expect_gradients(const Job& job) {
  const auto model = make(job);
  test::expect_slopes(*model, batch_of(job.micro_batch).view());
}

TEST(Gpt, HasTheTensorsOfHuggingFace) {
  Job job = gpt_job();
  job.tie_embeddings = false;
  std::map<std::string, std::vector<int64_t>> shapes;
  const auto model = make(job);
  for (const TensorInfo& tensor : model->table().tensors) shapes[tensor.name] = tensor.shape;
  EXPECT_EQ(shapes.size(), 2U + 2U * 12U + 2U + 1U);
  EXPECT_EQ(shapes["transformer.wte.weight"], (std::vector<int64_t>{13, 8}));
  EXPECT_EQ(shapes["transformer.wpe.weight"], (std::vector<int64_t>{6, 8}));
  EXPECT_EQ(shapes["transformer.h.1.attn.c_attn.weight"], (std::vector<int64_t>{8, 24}));
  EXPECT_EQ(shapes["transformer.h.1.mlp.c_fc.weight"], (std::vector<int64_t>{8, 32}));
  EXPECT_EQ(shapes["transformer.h.0.mlp.c_proj.bias"], (std::vector<int64_t>{8}));
  EXPECT_EQ(shapes["transformer.ln_f.bias"], (std::vector<int64_t>{8}));
  EXPECT_EQ(shapes["lm_head.weight"], (std::vector<int64_t>{13, 8}));
}

TEST(Gpt, NormOfRootMeanSquaresHasNoBias) {
  Job job = gpt_job();
  job.norm = Norm::kRms;
  const auto model = make(job);
  for (const TensorInfo& tensor : model->table().tensors) {
    EXPECT_EQ(tensor.name.find("ln_1.bias"), std::string::npos);
  }
}

TEST(Gpt, GradientsAreSlopesOfTheLoss) { expect_gradients(gpt_job()); }

TEST(Gpt, GradientsAreSlopesWithDropoutAndSeparateEmbeddings) {
  Job job = gpt_job();
  job.tie_embeddings = false;
  job.dropout = 0.25;
  job.attention_dropout = 0.25;
  job.norm = Norm::kRms;
  expect_gradients(job);
}

TEST(Gpt, ReportsEachGradientOnceAndTiedWeightsLast) {
  const auto model = make(gpt_job());
  const std::vector<float> weights = weights_of(*model);
  const RandomBatch batch = batch_of(3);
  std::vector<float> gradients(weights.size(), std::nanf(""));
  std::vector<std::vector<float>> at_ready(model->table().tensors.size());
  const auto part = [&](size_t tensor) {
    const TensorInfo& info = model->table().tensors[tensor];
    return std::vector<float>(gradients.begin() + info.offset,
                              gradients.begin() + info.offset + info.size);
  };
  std::vector<size_t> order;
  model->train(weights, batch.view(), gradients, [&](size_t tensor) {
    order.push_back(tensor);
    EXPECT_TRUE(at_ready[tensor].empty());
    at_ready[tensor] = part(tensor);
  });
  ASSERT_EQ(order.size(), at_ready.size());
  EXPECT_EQ(order.back(), 0U);  // the embedding is the first node
  for (size_t tensor = 0; tensor < at_ready.size(); ++tensor) {
    EXPECT_EQ(at_ready[tensor], part(tensor)) << model->table().tensors[tensor].name;
  }
}

TEST(Gpt, DropoutDependsOnStepAndMicroBatchAlone) {
  Job job = gpt_job();
  job.dropout = 0.5;
  job.attention_dropout = 0.5;
  const auto one = make(job);
  const auto two = make(job);
  const std::vector<float> weights = weights_of(*one);
  const RandomBatch batch = batch_of(3);
  const Trained first = train(*one, weights, batch.view(4, 1));
  const Trained other_step = train(*one, weights, batch.view(5, 1));
  const Trained other_batch = train(*one, weights, batch.view(4, 2));
  EXPECT_FALSE(first == other_step);
  EXPECT_FALSE(first == other_batch);
  EXPECT_FALSE(other_step == other_batch);
  EXPECT_TRUE(train(*two, weights, batch.view(4, 2)) == other_batch);
  EXPECT_TRUE(train(*two, weights, batch.view(4, 1)) == first);
  job.seed = 99;
  EXPECT_FALSE(train(*make(job), weights, batch.view(4, 1)) == first);
}

TEST(Gpt, EvaluationCountsTargetsAndHasNoDropout) {
  Job job = gpt_job();
  const auto calm = make(job);
  job.dropout = 0.5;
  const auto noisy = make(job);
  const std::vector<float> weights = weights_of(*calm);
  const RandomBatch batch = batch_of(3);
  std::vector<HeadSums> sums(1);
  std::vector<HeadSums> again(1);
  calm->evaluate(weights, batch.view(), sums);
  noisy->evaluate(weights, batch.view(), again);
  EXPECT_EQ(sums, again);
  EXPECT_EQ(sums[0].counted, 3 * kPositions - 1);
  EXPECT_EQ(sums[0].loss, sums[0].metric);
  EXPECT_NEAR(train(*calm, weights, batch.view()).loss,
              sums[0].loss / static_cast<double>(sums[0].counted), 1e-6);
  EXPECT_EQ(calm->heads().front().metric, Metric::kPerplexity);
}

// The keys of dropout and the scale of the loss reach a device with each micro-batch.
TEST(Gpt, HasTheSameBitsInTheOrderOfADevice) {
  Job job = gpt_job();
  job.dropout = 0.5;
  job.attention_dropout = 0.5;
  const auto here = make(job);
  const auto there = make_model_on(make_queued_backend(std::make_shared<device::FakeDevice>(), 1),
                                   job, token_fields(kPositions, kVocabulary));
  const std::vector<float> weights = weights_of(*here);
  const RandomBatch batch = batch_of(3);
  for (const int64_t step : {4, 5, 6, 7}) {  // from the third on as a captured graph
    for (const int64_t micro_batch : {0, 1}) {
      EXPECT_TRUE(train(*there, weights, batch.view(step, micro_batch)) ==
                  train(*here, weights, batch.view(step, micro_batch)))
          << step << ", " << micro_batch;
    }
  }
}

TEST(Gpt, RefusesHeadsThatDoNotDivideItsWidth) {
  Job job = gpt_job();
  job.heads = 3;
  try {
    make(job);
    FAIL() << "must be refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("heads = 3 does not divide embed = 8"));
  }
}

TEST(Gpt, ArenaIsLittleLargerThanWhatIsAliveAtOnce) {
  Job job = gpt_job();
  job.layers = 4;
  job.embed = 32;
  const auto model = make(job);
  const MemoryPlan& plan = dynamic_cast<GraphModel&>(*model).graph().memory_plan();
  EXPECT_LE(static_cast<double>(plan.bytes), 1.1 * static_cast<double>(plan.largest_live));
}

}  // namespace
}  // namespace pushpull

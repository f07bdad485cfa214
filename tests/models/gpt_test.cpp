// The model gpt: its tensors, its gradients against differences of the loss, and what a graph
// promises: each gradient once and after its last writer, dropout by (seed, step, micro-batch).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/job/job.h"
#include "models/graph_model.h"
#include "tests/device/fake_device.h"
#include "tests/models/initial_weights.h"
#include "tests/models/queued_backend.h"

namespace pushpull {
namespace {

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
struct Batch {
  explicit Batch(int64_t samples, uint64_t seed = 1)
      : layout(token_fields(kPositions, kVocabulary), samples),
        block(layout.words()),
        indices(static_cast<size_t>(samples)) {
    std::mt19937_64 random(seed);
    for (size_t field = 0; field < 2; ++field) {
      int32_t* ints = as_ints(block.data() + layout.offset(field));
      for (size_t i = 0; i < layout.size(field); ++i) {
        ints[i] = static_cast<int32_t>(random() % static_cast<uint64_t>(kVocabulary));
      }
    }
    if (samples > 1) as_ints(block.data() + layout.offset(1))[kPositions + 2] = -1;
  }
  Samples view(int64_t step = 0, int64_t micro_batch = 0) const {
    return {step, micro_batch, indices, block};
  }
  BatchLayout layout;
  std::vector<float> block;
  std::vector<int64_t> indices;
};

std::unique_ptr<Model> make(const Job& job) {
  return make_model(job, token_fields(kPositions, kVocabulary));
}

std::vector<float> weights_of(const Model& model, uint64_t seed = 3) {
  std::mt19937_64 random(seed);
  std::vector<float> weights(static_cast<size_t>(model.table().total));
  for (float& w : weights) {
    w = static_cast<float>(static_cast<double>(random() >> 40U) / 16777216.0 - 0.5) * 0.8F;
  }
  return weights;
}

struct Trained {
  float loss = 0.0F;
  std::vector<float> gradients;
  std::vector<size_t> order;
  friend bool operator==(const Trained& a, const Trained& b) {
    const auto same = [](float x, float y) {
      return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
    };
    return same(a.loss, b.loss) && std::ranges::equal(a.gradients, b.gradients, same);
  }
};

Trained train(Model& model, const std::vector<float>& weights, const Samples& samples) {
  Trained out;
  out.gradients.assign(weights.size(), std::nanf(""));
  out.loss = model.train(weights, samples, out.gradients,
                         [&](size_t tensor) { out.order.push_back(tensor); });
  return out;
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

// The derivative along a direction in each tensor against a difference of the loss.
void expect_gradients(const Job& job) {
  const auto model = make(job);
  const std::vector<float> weights = weights_of(*model);
  const Batch batch(job.micro_batch);
  const Trained at = train(*model, weights, batch.view());
  std::mt19937_64 random(7);
  for (const TensorInfo& tensor : model->table().tensors) {
    constexpr float kStep = 1.0F / 256;
    std::vector<float> up = weights;
    std::vector<float> down = weights;
    double slope = 0.0;
    double length = 0.0;
    for (int64_t i = 0; i < tensor.size; ++i) {
      const auto k = static_cast<size_t>(tensor.offset + i);
      const float direction = random() % 2 == 0 ? 1.0F : -1.0F;
      up[k] += kStep * direction;
      down[k] -= kStep * direction;
      slope += static_cast<double>(at.gradients[k] * direction);
      length += static_cast<double>(at.gradients[k] * at.gradients[k]);
    }
    const double difference = (static_cast<double>(train(*model, up, batch.view()).loss) -
                               static_cast<double>(train(*model, down, batch.view()).loss)) /
                              (2.0 * kStep);
    // the second term: the loss is a float; the third: curvature
    EXPECT_NEAR(slope, difference, 0.02 * std::sqrt(length) + 1e-4 + 0.01 * std::fabs(slope))
        << tensor.name;
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
  const Batch batch(3);
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
  const Batch batch(3);
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
  const Batch batch(3);
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

TEST(Gpt, IsRefusedByADeviceInOneLine) {
  const auto device = std::make_shared<device::FakeDevice>();
  try {
    make_model_on(make_queued_backend(device, 1), gpt_job(), token_fields(kPositions, kVocabulary));
    FAIL() << "must be refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("embedding has no kernel on fake:0 yet"));
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

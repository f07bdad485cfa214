#include "client/read_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "common/base/error.h"
#include "common/base/text.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class ReadModelTest : public testing::Test {
 protected:
  ReadModelTest() {
    job_.schedule.lr = 0.5;
    tensors_[0].name = "bias";
    tensors_[0].shape = shape_.data();
    tensors_[0].dimensions = 1;
    tensors_[1].name = "weight";
    tensors_[1].shape = shape_.data();
    tensors_[1].dimensions = 2;
    heads_[0] = {"answer", PP_ACCURACY};
    heads_[1] = {"words", PP_PERPLEXITY};
    model_.tensors = tensors_.data();
    model_.tensor_count = tensors_.size();
    model_.heads = heads_.data();
    model_.head_count = heads_.size();
    model_.train_samples = 10;
    model_.test_samples = 4;
  }

  ExternalSpec read() const { return read_model(model_, job_); }
  // Returns the line of the mistake, or "".
  std::string mistake() const {
    return thrown(ErrorCode::kUsage, [&] { read(); });
  }

  Job job_;
  const std::array<int64_t, 2> shape_ = {2, 3};
  std::array<pp_tensor, 2> tensors_{};
  std::array<pp_head, 2> heads_{};
  pp_model model_{};
};

TEST_F(ReadModelTest, TensorsHeadsAndSamplesAreTakenOver) {
  const ExternalSpec spec = read();
  EXPECT_EQ(spec.table.total, 8);
  EXPECT_EQ(spec.table.tensors[1].name, "weight");
  EXPECT_THAT(spec.table.tensors[1].shape, ElementsAre(2, 3));
  EXPECT_EQ(spec.table.tensors[0].lr_scale, 1.0);
  EXPECT_EQ(spec.table.tensors[0].weight_decay, std::nullopt);
  EXPECT_EQ(spec.heads[0].metric, Metric::kAccuracy);
  EXPECT_EQ(spec.heads[1].name, "words");
  EXPECT_EQ(spec.heads[1].metric, Metric::kPerplexity);
  EXPECT_THAT(spec.weights, IsEmpty());
  EXPECT_EQ(spec.test_samples, 4);
}

TEST_F(ReadModelTest, EachMetricIsItsOwn) {
  heads_[0].metric = PP_MEAN_SQUARED_ERROR;
  heads_[1].metric = PP_EXACT_MATCH;
  EXPECT_EQ(read().heads[0].metric, Metric::kMeanSquaredError);
  EXPECT_EQ(read().heads[1].metric, Metric::kExactMatch);
}

TEST_F(ReadModelTest, ATensorsOwnRateIsAFactorOfTheJobs) {
  const double lr = 0.05;
  const double decay = 0.0;
  tensors_[1].lr = &lr;
  tensors_[1].weight_decay = &decay;
  const ExternalSpec spec = read();
  EXPECT_DOUBLE_EQ(spec.table.tensors[1].lr_scale, 0.1);
  EXPECT_EQ(spec.table.tensors[1].weight_decay, 0.0);
  EXPECT_EQ(spec.table.tensors[0].lr_scale, 1.0);
}

TEST_F(ReadModelTest, ARunningStatisticHasARuleOfItsOwn) {
  tensors_[0].is_average = 1;
  tensors_[0].average_momentum = 0.25F;
  EXPECT_EQ(read().table.tensors[0].rule, UpdateRule::kAverage);
  EXPECT_EQ(read().table.tensors[0].average_momentum, 0.25F);
  tensors_[0].average_momentum = 1.5F;
  EXPECT_THAT(mistake(), HasSubstr("bias has average_momentum 1.5"));
}

TEST_F(ReadModelTest, OwnWeightsAreCopied) {
  std::array<float, 8> weights{1, 2, 3, 4, 5, 6, 7, 8};
  model_.weights = weights.data();
  const ExternalSpec spec = read();
  weights = {};
  EXPECT_THAT(spec.weights, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  weights[3] = kNan;
  EXPECT_THAT(mistake(), HasSubstr("initial weights of weight are not finite: element 1 is nan"));
}

TEST_F(ReadModelTest, WithoutHeadsNothingIsEvaluated) {
  model_.head_count = 0;
  EXPECT_EQ(read().test_samples, 0);
}

TEST_F(ReadModelTest, ARateNeedsAJobWithARate) {
  const double lr = 0.1;
  tensors_[1].lr = &lr;
  job_.schedule.lr = 0.0;
  EXPECT_THAT(mistake(), HasSubstr("weight has lr 0.1 of its own"));
  const double none = 0.0;
  tensors_[1].lr = &none;
  EXPECT_EQ(mistake(), "");
}

TEST_F(ReadModelTest, RatesAreFiniteAndNotNegative) {
  for (const double bad : {-0.1, static_cast<double>(kNan), HUGE_VAL}) {
    tensors_[0].lr = &bad;
    EXPECT_THAT(mistake(), HasSubstr("tensor bias has lr"));
    tensors_[0].lr = nullptr;
    tensors_[0].weight_decay = &bad;
    EXPECT_THAT(mistake(), HasSubstr("tensor bias has weight_decay"));
    tensors_[0].weight_decay = nullptr;
  }
}

TEST_F(ReadModelTest, MistakesInTensorsAreNamed) {
  tensors_[1].name = "bias";
  EXPECT_THAT(mistake(), HasSubstr("two tensors are called bias"));
  tensors_[1].name = nullptr;
  EXPECT_THAT(mistake(), HasSubstr("tensor '': the name is empty"));
  tensors_[1].name = "weight";
  const std::array<int64_t, 2> empty = {2, 0};
  tensors_[1].shape = empty.data();
  EXPECT_THAT(mistake(), HasSubstr("tensor 'weight' of shape [2, 0]"));
  // the product of its sizes would overflow; each of the next two is small enough alone
  const std::array<int64_t, 2> huge = {INT64_MAX, INT64_MAX};
  tensors_[1].shape = huge.data();
  EXPECT_THAT(mistake(), HasSubstr("tensor weight of shape [9223372036854775807"));
  const std::array<int64_t, 2> large = {int64_t{1} << 20, int64_t{1} << 16};
  tensors_[1].shape = large.data();
  EXPECT_THAT(mistake(), HasSubstr("more than 68719476736 elements"));
  tensors_[1].shape = shape_.data();
  tensors_[1].value = kNan;
  EXPECT_THAT(mistake(), HasSubstr("weight: its init value is not finite"));
  tensors_[1].value = 0.0F;
  tensors_[1].init = static_cast<pp_init>(9);
  EXPECT_THAT(mistake(), HasSubstr("weight: there is no pp_init 9"));
  model_.tensor_count = 0;
  EXPECT_THAT(mistake(), HasSubstr("a model needs a tensor"));
}

TEST_F(ReadModelTest, TextsAreUtf8InOneLine) {
  for (const char* name : {"", "\xff", "two\nlines", "__metadata__"}) {
    tensors_[0].name = name;
    EXPECT_THAT(mistake(), HasSubstr("tensor '" + printable(name) + "': ")) << name;
  }
  tensors_[0].name = "a";
  model_.data_digest = "\xff";
  EXPECT_THAT(mistake(), HasSubstr("data_digest is not UTF-8"));
  model_.data_digest = "d";
  model_.numerics = "\xc3";
  EXPECT_THAT(mistake(), HasSubstr("numerics is not UTF-8"));
}

TEST_F(ReadModelTest, WeightsOfSamplesArePartOfTheDigest) {
  job_.sampler = SamplerKind::kWeighted;
  std::array<double, 10> weights{1, 0, 2};
  model_.sample_weights = weights.data();
  model_.data_digest = "d";
  const ExternalSpec one = read();
  EXPECT_THAT(one.sample_weights, testing::ElementsAreArray(weights));
  EXPECT_THAT(one.data_digest, testing::MatchesRegex("d, weights [0-9a-f]+"));
  weights[2] = 3;
  EXPECT_NE(read().data_digest, one.data_digest);
  weights[2] = -1;
  EXPECT_THAT(mistake(), HasSubstr("the weight of sample 2 is -1: expected a finite number"));
  weights = {};
  EXPECT_THAT(mistake(), HasSubstr("the weights of 10 samples add up to 0"));
}

TEST_F(ReadModelTest, WeightsOfSamplesNeedTheJobsSamplerAndItNeedsThem) {
  const std::array<double, 10> weights{1};
  model_.sample_weights = weights.data();
  EXPECT_THAT(mistake(), HasSubstr("the job has sampler = uniform: take sampler = weighted"));
  job_.sampler = SamplerKind::kWeighted;
  model_.sample_weights = nullptr;
  EXPECT_THAT(mistake(), HasSubstr("sampler = weighted: give a weight for each training sample "
                                   "(weights= of attach and loader"));
  model_.in_order = 1;
  EXPECT_THAT(mistake(), HasSubstr("reads its samples in their order: take sampler = uniform"));
  job_.sampler = SamplerKind::kUniform;
  EXPECT_TRUE(read().in_order);
  EXPECT_EQ(read().data_digest, ", in order");
}

TEST_F(ReadModelTest, MistakesInHeadsAreNamed) {
  heads_[1].name = "answer";
  EXPECT_THAT(mistake(), HasSubstr("two heads are called answer"));
  heads_[1].name = "Two Words";
  EXPECT_THAT(mistake(), HasSubstr("head 'Two Words': expected a name"));
  heads_[1].name = "start_Class-2";
  EXPECT_EQ(mistake(), "");
  heads_[1] = {"words", static_cast<pp_metric>(7)};
  EXPECT_THAT(mistake(), HasSubstr("words: there is no pp_metric 7"));
}

TEST_F(ReadModelTest, SamplesAreNeeded) {
  model_.train_samples = 0;
  EXPECT_THAT(mistake(), HasSubstr("training samples, got 0 + 4"));
  model_.train_samples = 10;
  model_.test_samples = -1;
  EXPECT_THAT(mistake(), HasSubstr("got 10 + -1"));
}

TEST_F(ReadModelTest, AStageIsOneOfTheJobs) {
  EXPECT_FALSE(read().own_stage);
  job_.stages = 3;
  EXPECT_EQ(mistake(),
            "[client] the job has stages = 3: attach one stage of the model, got the whole model");
  model_.stages = 2;
  EXPECT_EQ(mistake(),
            "[client] the model has 2 stages, and the job has stages = 3: they must be equal");
  model_.stages = 3;
  model_.stage = 3;
  EXPECT_EQ(mistake(), "[client] stage 3 of 3: expected 0 to 2");
  model_.stage = 2;
  model_.port = 65'536;
  EXPECT_EQ(mistake(), "[client] port 65536: expected 0 to 65535");
  model_.port = 4000;
  model_.stage_digest = "frozen";
  const ExternalSpec spec = read();
  ASSERT_TRUE(spec.own_stage);
  EXPECT_EQ(spec.own_stage->stage, 2);
  EXPECT_EQ(spec.own_stage->port, 4000);
  EXPECT_EQ(spec.own_stage->digest, "frozen");
}

}  // namespace
}  // namespace pushpull

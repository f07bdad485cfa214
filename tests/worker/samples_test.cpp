// The samples that a model gets, and their announcement to a data set that reads by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/process.h"
#include "common/job/job.h"
#include "worker/compute/compute.h"
#include "worker/compute/evaluate.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// "train 3/1 epoch 1: 4 5", "test -1/0 epoch 0: 0 1".
std::string text_of(const char* split, int64_t step, int64_t micro_batch, int64_t epoch,
                    std::span<const int64_t> indices) {
  std::string out = std::string(split) + " " + std::to_string(step) + "/" +
                    std::to_string(micro_batch) + " epoch " + std::to_string(epoch) + ":";
  for (const int64_t i : indices) out += " " + std::to_string(i);
  return out;
}

class Told final : public Dataset {
 public:
  explicit Told(FieldTable fields) : fields_(std::move(fields)) {}
  int64_t size(Split split) const override { return split == Split::kTrain ? 12 : 5; }
  const FieldTable& fields() const override { return fields_; }
  const std::string& digest() const override { return digest_; }
  void read(const Request& /*request*/, float* /*block*/) const override {}
  void announce(const Announcement& soon) const override {
    told.push_back(text_of(soon.split == Split::kTrain ? "train" : "test", soon.step,
                           soon.micro_batch, soon.epoch, soon.indices));
  }

  mutable std::vector<std::string> told;

 private:
  const FieldTable fields_;
  const std::string digest_ = "fake";
};

class Shown final : public Model {
 public:
  Shown() {
    TensorInfo slope;
    slope.name = "slope";
    slope.shape = {1};
    table_.add(slope);
    heads_.push_back({"y", Metric::kMeanSquaredError, 1});
  }
  float train(std::span<const float> /*weights*/, const Samples& samples,
              std::span<float> /*gradients*/, const GradientReady& ready,
              const WeightsNeeded& /*needed*/) override {
    note("train", samples);
    ready(0);
    return 0.0F;
  }
  void evaluate(std::span<const float> /*weights*/, const Samples& samples,
                std::span<HeadSums> /*sums*/) override {
    note("test", samples);
  }
  std::string numerics() const override { return "fake"; }
  void choose(const std::string& /*choices*/) override {}

  std::vector<std::string> shown;
  std::vector<bool> same_weights;

 private:
  void note(const char* split, const Samples& samples) {
    shown.push_back(
        text_of(split, samples.step, samples.micro_batch, samples.epoch, samples.indices));
    same_weights.push_back(samples.same_weights);
  }
};

// 6 micro-batches of 2 samples are an epoch of 2 steps.
Job job_of_three_micro_batches() {
  Job job;
  job.global_batch = 6;
  job.micro_batch = 2;
  job.shuffle = false;
  return job;
}

class SamplesTest : public testing::Test {
 protected:
  void compute(int64_t step, const std::vector<Range>& nodes) {
    compute_.begin(step, nodes, weights_);
    for (size_t i = 0; i < nodes.size(); ++i) {
      std::vector<float> losses;
      ASSERT_TRUE(compute_.node([](int, const Payload&) {}, losses));
    }
  }

  const Job job_ = job_of_three_micro_batches();
  Told data_{FieldTable{}};
  Shown model_;
  const SliceMap map_{1, 1 << 20, 1};
  Compute compute_{job_, data_, model_, map_, [] { return false; }};
  const std::array<float, 1> weights_ = {0.5F};
};

TEST_F(SamplesTest, AModelSeesItsTask) {
  compute(3, {{0, 2}, {2, 3}});
  EXPECT_THAT(model_.shown, ElementsAre("train 3/0 epoch 1: 6 7", "train 3/1 epoch 1: 8 9",
                                        "train 3/2 epoch 1: 10 11"));
}

TEST_F(SamplesTest, OnlyTheFirstMicroBatchOfATaskHasOtherWeights) {
  compute(0, {{0, 2}, {2, 3}});
  compute(1, {{0, 1}});
  EXPECT_THAT(model_.same_weights, ElementsAre(false, true, true, false));
}

TEST_F(SamplesTest, TheTaskAndTheNextOneAreAnnounced) {
  compute_.begin(0, {{1, 2}, {2, 3}}, weights_);
  compute_.hint(2, {{0, 1}});
  EXPECT_THAT(data_.told, ElementsAre("train 0/1 epoch 0: 2 3", "train 0/2 epoch 0: 4 5",
                                      "train 2/0 epoch 1: 0 1"));
}

TEST_F(SamplesTest, ADataSetWithFieldsIsNotTold) {
  const Told pixels(image_fields({1, 1, 1}, 2));
  Compute compute(job_, pixels, model_, map_, [] { return false; });
  compute.begin(0, {{0, 3}}, weights_);
  Evaluator(job_, pixels, model_).announce(0);
  EXPECT_THAT(pixels.told, IsEmpty());
}

TEST_F(SamplesTest, TheChunksOfAnEvaluationHaveOneVersionOfTheWeights) {
  Activity activity{now_ms};
  EvaluationShare share(
      {job_, data_, model_}, 9, [] { return false; }, activity);
  share.run(40, {0, 3}, weights_);
  EXPECT_THAT(model_.shown, ElementsAre("test -1/0 epoch 0: 0 1", "test -1/1 epoch 0: 2 3",
                                        "test -1/2 epoch 0: 4"));
  EXPECT_EQ(data_.told, model_.shown);
  share.run(50, {1, 2}, weights_);
  EXPECT_THAT(model_.same_weights, ElementsAre(false, true, true, false));
}

}  // namespace
}  // namespace pushpull

#include "worker/compute/evaluate.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "common/base/error.h"
#include "common/job/job.h"

namespace pushpull {
namespace {

// Test sample i has the two pixels (i + 1, 0.5) and the label i % 3.
class FakeDataset : public Dataset {
 public:
  explicit FakeDataset(int64_t test_size) : test_size_(test_size) {}
  int64_t size(Split split) const override { return split == Split::kTest ? test_size_ : 0; }
  const FieldTable& fields() const override { return fields_; }
  const std::string& digest() const override { return digest_; }
  void read(const Request& request, float* block) const override {
    ASSERT_EQ(request.split, Split::kTest) << "evaluation read the training split";
    float* images = block + request.layout.offset(0);
    int32_t* labels = as_ints(block + request.layout.offset(1));
    for (const int64_t i : request.indices) {
      ASSERT_TRUE(i >= 0 && i < test_size_);
      *images++ = static_cast<float>(i + 1);
      *images++ = 0.5F;
      *labels++ = static_cast<int32_t>(i % 3);
    }
  }

 private:
  int64_t test_size_;
  FieldTable fields_ = image_fields({2, 1, 1}, 3);
  std::string digest_ = "fake";
};

// Sample i is correct if its label is the first weight. Its loss is its first pixel.
class FakeModel : public Model {
 public:
  FakeModel() {
    table_.add({.name = "w", .shape = {1}});
    heads_ = {{"label", Metric::kAccuracy, 1}};
  }
  float train(std::span<const float>, const Samples&, std::span<float>, const GradientReady&,
              const WeightsNeeded&) override {
    ADD_FAILURE() << "evaluation trained";
    return 0.0F;
  }
  void evaluate(std::span<const float> weights, const Samples& samples,
                std::span<HeadSums> sums) override {
    const BatchLayout layout(image_fields({2, 1, 1}, 3), micro_batch);
    ASSERT_EQ(samples.block.size(), layout.words());
    const float* images = samples.block.data();
    const int32_t* labels = as_ints(images + layout.offset(1));
    const int64_t valid = std::ssize(samples.indices);
    seen_images.assign(images, images + 2 * micro_batch);
    seen_labels.assign(labels, labels + micro_batch);
    sums.front() = {0.0, valid, 0.0};
    for (int64_t i = 0; i < valid; ++i) {
      sums.front().metric += static_cast<float>(labels[i]) == weights[0] ? 1 : 0;
      sums.front().loss += images[2 * i];
    }
  }
  std::string numerics() const override { return "fake"; }
  void choose(const std::string&) override {}

  int64_t micro_batch = 4;
  std::vector<float> seen_images;
  std::vector<int32_t> seen_labels;
};

Job job_of(int64_t micro_batch) {
  Job job;
  job.micro_batch = micro_batch;
  return job;
}

constexpr std::array<float, 1> kWeights = {1.0F};

TEST(Evaluator, CountsEachSampleOnceInAnyOrderOfTheChunks) {
  for (const int64_t size : {1, 3, 4, 5, 8, 11}) {
    const FakeDataset dataset(size);
    FakeModel model;
    Evaluator evaluator(job_of(4), dataset, model);
    ASSERT_EQ(evaluator.chunks(), (size + 3) / 4) << size;
    int64_t correct = 0;
    int64_t samples = 0;
    double loss = 0.0;
    for (int64_t chunk = evaluator.chunks() - 1; chunk >= 0; --chunk) {
      const HeadSums label = evaluator.run(kWeights, chunk).front();
      EXPECT_EQ(label.counted, evaluator.samples(chunk));
      correct += static_cast<int64_t>(label.metric);
      loss += label.loss;
      samples += evaluator.samples(chunk);
    }
    EXPECT_EQ(samples, size);
    EXPECT_EQ(correct, (size + 1) / 3) << size;
    EXPECT_EQ(loss, static_cast<double>(size * (size + 1)) / 2) << size;
  }
}

TEST(Evaluator, PadsTheLastChunkWithZeros) {
  const FakeDataset dataset(6);
  FakeModel model;
  Evaluator evaluator(job_of(4), dataset, model);
  evaluator.run(kWeights, 0);
  evaluator.run(kWeights, 1);
  EXPECT_EQ(model.seen_images, (std::vector<float>{5, 0.5F, 6, 0.5F, 0, 0, 0, 0}));
  EXPECT_EQ(model.seen_labels, (std::vector<int32_t>{1, 2, 0, 0}));
}

TEST(Evaluator, EmptyTestSplitHasNoChunks) {
  const FakeDataset dataset(0);
  FakeModel model;
  EXPECT_EQ(Evaluator(job_of(4), dataset, model).chunks(), 0);
}

TEST(Evaluator, RefusesWeightsOfAnotherModelAndChunksOutOfRange) {
  const FakeDataset dataset(6);
  FakeModel model;
  Evaluator evaluator(job_of(4), dataset, model);
  EXPECT_THROW(evaluator.run(std::vector<float>(2), 0), Error);
  EXPECT_THROW(evaluator.run(kWeights, 2), Error);
  EXPECT_THROW(evaluator.run(kWeights, -1), Error);
}

TEST(EvaluationShare, ReportsItsChunks) {
  FakeDataset dataset(10);
  FakeModel model;
  const Job job = job_of(4);
  Activity activity([] { return 0; });
  EvaluationShare evaluation(
      {job, dataset, model}, 101, [] { return false; }, activity);
  const std::array<float, 1> weights = {1.0F};
  const auto result = evaluation.run(7, {1, evaluation.chunks()}, weights);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->incarnation(), 101U);
  EXPECT_EQ(result->step(), 7);
  EXPECT_EQ(result->chunks_size(), evaluation.chunks() - 1);
  EXPECT_EQ(result->chunks(0).chunk(), 1);
  ASSERT_EQ(result->chunks(0).sums_size(), 1);
  EXPECT_EQ(result->chunks(0).sums(0).counted(), 4);
}

TEST(EvaluationShare, ReportsNothingOnceTheJobIsOver) {
  FakeDataset dataset(10);
  FakeModel model;
  const Job job = job_of(4);
  int asked = 0;
  Activity activity([] { return 0; });
  EvaluationShare evaluation(
      {job, dataset, model}, 101, [&] { return ++asked > 1; }, activity);
  const std::array<float, 1> weights = {1.0F};
  EXPECT_FALSE(evaluation.run(7, {0, evaluation.chunks()}, weights));
}

}  // namespace
}  // namespace pushpull

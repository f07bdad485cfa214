#include "datasets/dummy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "common/base/error.h"
#include "tests/common/thrown.h"
#include "tests/datasets/images.h"

namespace pushpull {
namespace {

Job dummy_job(const InputShape& input, int64_t classes) {
  Job job;
  job.input = input;
  job.classes = classes;
  return job;
}

Images read_all(const Dataset& data, Split split) {
  std::vector<int64_t> indices(static_cast<size_t>(data.size(split)));
  std::iota(indices.begin(), indices.end(), 0);
  return read_images(data, split, indices);
}

// Returns the share of test samples for which the nearest class mean of the training samples is
// right.
double nearest_mean_accuracy(const Dataset& data) {
  const Images train = read_all(data, Split::kTrain);
  const Images test = read_all(data, Split::kTest);
  const auto size = static_cast<size_t>(pixels_of(data));
  const auto classes = static_cast<size_t>(classes_of(data));
  std::vector<double> means(classes * size, 0.0);
  std::vector<double> counts(classes, 0.0);
  for (size_t n = 0; n < train.labels.size(); ++n) {
    const auto k = static_cast<size_t>(train.labels[n]);
    counts[k] += 1.0;
    for (size_t i = 0; i < size; ++i) means[k * size + i] += train.images[n * size + i];
  }
  size_t right = 0;
  for (size_t n = 0; n < test.labels.size(); ++n) {
    size_t best = 0;
    double best_distance = 1e300;
    for (size_t k = 0; k < classes; ++k) {
      double distance = 0.0;
      for (size_t i = 0; i < size; ++i) {
        const double d = means[k * size + i] / counts[k] - test.images[n * size + i];
        distance += d * d;
      }
      if (distance < best_distance) {
        best = k;
        best_distance = distance;
      }
    }
    right += best == static_cast<size_t>(test.labels[n]) ? 1 : 0;
  }
  return static_cast<double>(right) / static_cast<double>(test.labels.size());
}

TEST(Dummy, HasDefaultSizes) {
  const Dummy data(dummy_job({1, 4, 4}, 3));
  EXPECT_EQ(data.size(Split::kTrain), 4096);
  EXPECT_EQ(data.size(Split::kTest), 1024);
  EXPECT_EQ(classes_of(data), 3);
}

TEST(Dummy, CanBeLearned) {
  for (const InputShape& input :
       {InputShape{1, 28, 28}, InputShape{100, 1, 1}, InputShape{3, 5, 9}}) {
    const Dummy data(dummy_job(input, 10));
    const double accuracy = nearest_mean_accuracy(data);
    EXPECT_GT(accuracy, 0.9) << input.channels << "x" << input.height << "x" << input.width;
    EXPECT_LE(accuracy, 1.0);
  }
}

TEST(Dummy, HasPixelsBetweenZeroAndOneAndBalancedLabels) {
  const Dummy data(dummy_job({1, 8, 8}, 4));
  const Images samples = read_all(data, Split::kTrain);
  EXPECT_THAT(samples.images, testing::Each(testing::AllOf(testing::Ge(0.0F), testing::Le(1.0F))));
  std::vector<int> counts(4, 0);
  for (const int32_t label : samples.labels) ++counts.at(static_cast<size_t>(label));
  EXPECT_THAT(counts, testing::Each(testing::Gt(4096 / 4 * 3 / 4)));
  const double mean = std::accumulate(samples.images.begin(), samples.images.end(), 0.0) /
                      static_cast<double>(samples.images.size());
  EXPECT_NEAR(mean, 0.5, 0.05);
}

TEST(Dummy, SplitsShareNoSample) {
  Job job = dummy_job({1, 4, 4}, 2);
  job.train_samples = job.test_samples = 50;
  const Dummy data(job);
  const Images train = read_all(data, Split::kTrain);
  const Images test = read_all(data, Split::kTest);
  for (size_t a = 0; a < 50; ++a) {
    const std::vector<float> image(&train.images[a * 16], &train.images[a * 16] + 16);
    for (size_t b = 0; b < 50; ++b) {
      ASSERT_NE(image, std::vector<float>(&test.images[b * 16], &test.images[b * 16] + 16));
    }
  }
}

TEST(Dummy, SampleDependsOnSeedAndIndexOnly) {
  Job job = dummy_job({1, 64, 64}, 10);
  const Dummy kept(job);  // 64 MiB of images: generated at the start
  job.train_samples = 8192;
  const Dummy made(job);  // generated when they are read
  job.seed = 9;
  const Dummy other(job);
  const std::vector<int64_t> indices = {4095, 0, 77};
  const auto read = [&](const Dataset& data) { return read_images(data, Split::kTrain, indices); };
  EXPECT_EQ(read(kept).images, read(made).images);
  EXPECT_EQ(read(kept).labels, read(made).labels);
  EXPECT_NE(read(kept).images, read(other).images);
}

TEST(Dummy, DigestNamesTheKeysThatDefineTheData) {
  Job job = dummy_job({1, 4, 4}, 2);
  const std::string digest = Dummy(job).digest();
  EXPECT_EQ(digest.size(), 64U);
  EXPECT_EQ(Dummy(job).digest(), digest);
  Job other = job;
  other.seed = 2;
  EXPECT_NE(Dummy(other).digest(), digest);
  other = job;
  other.input = {4, 4, 1};
  EXPECT_NE(Dummy(other).digest(), digest);
  other = job;
  other.test_samples = 1000;
  EXPECT_NE(Dummy(other).digest(), digest);
}

TEST(Dummy, NamesTheKeyThatDoesNotFit) {
  const auto message = [](const Job& job) -> std::string {
    return thrown(ErrorCode::kUsage, [&] { const Dummy data(job); });
  };
  EXPECT_THAT(message(dummy_job({1, 4, 4}, 1)), testing::HasSubstr("classes"));
  EXPECT_THAT(message(dummy_job({1, 0, 4}, 2)), testing::HasSubstr("input"));
  EXPECT_THAT(message(dummy_job({1 << 20, 1 << 20, 1 << 30}, 2)), testing::HasSubstr("input"));
  Job job = dummy_job({1, 4, 4}, 2);
  job.train_samples = int64_t{1} << 40;
  EXPECT_THAT(message(job), testing::HasSubstr("train-samples"));
}

TEST(Dummy, RefusesAnIndexOutOfRange) {
  const Dummy data(dummy_job({1, 1, 1}, 2));
  EXPECT_THROW(read_images(data, Split::kTrain, {4096}), Error);
  EXPECT_THROW(read_images(data, Split::kTrain, {-1}), Error);
  EXPECT_THROW(read_images(data, Split::kTest, {1024}), Error);
}

}  // namespace
}  // namespace pushpull

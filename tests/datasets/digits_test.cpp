#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "common/base/error.h"
#include "common/job/job.h"
#include "datasets/dataset.h"
#include "tests/datasets/idx_writer.h"
#include "tests/datasets/images.h"

namespace pushpull {
namespace {

Job digits_job() {
  Job job;
  job.dataset = "digits";
  return job;
}

TEST(Digits, HoldsAllSamplesWithAFifthForTheTest) {
  const auto data = open_dataset(digits_job());
  EXPECT_EQ(data->size(Split::kTrain), 1438);
  EXPECT_EQ(data->size(Split::kTest), 359);
  EXPECT_EQ(classes_of(*data), 10);
  EXPECT_EQ(shape_of(*data), (std::vector<int64_t>{1, 8, 8}));
}

TEST(Digits, ReadsTheFirstDigitAsPublished) {
  const auto data = open_dataset(digits_job());
  const Images first = read_images(*data, Split::kTrain, {0});
  EXPECT_EQ(first.labels, std::vector<int32_t>{0});
  const std::vector<float> row = {0, 0, 5, 13, 9, 1, 0, 0};
  for (size_t i = 0; i < row.size(); ++i) EXPECT_EQ(first.images[i], row[i] / 16.0F);
  // the original file's sample 4
  EXPECT_EQ(read_images(*data, Split::kTest, {0}).labels, std::vector<int32_t>{4});
}

TEST(Digits, PixelsAreSixteenthsUpToOne) {
  const auto data = open_dataset(digits_job());
  std::vector<int64_t> indices(1438);
  std::iota(indices.begin(), indices.end(), 0);
  const std::vector<float> images = read_images(*data, Split::kTrain, indices).images;
  EXPECT_EQ(*std::max_element(images.begin(), images.end()), 1.0F);
  EXPECT_EQ(*std::min_element(images.begin(), images.end()), 0.0F);
  for (const float pixel : images) ASSERT_EQ(pixel * 16.0F, std::round(pixel * 16.0F));
}

// Sets PUSHPULL_SHARE while it lives.
class Share {
 public:
  explicit Share(const std::string& path) { setenv("PUSHPULL_SHARE", path.c_str(), 1); }
  ~Share() { unsetenv("PUSHPULL_SHARE"); }
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;
};

TEST(Digits, AreReadFromPushpullShareFirst) {
  const TestFolder folder;
  std::filesystem::copy(PUSHPULL_SOURCE_DIR "/datasets/digits", folder.file("digits"));
  const Share share(folder.path());
  const std::string digest = open_dataset(digits_job())->digest();
  EXPECT_EQ(digest.size(), 64U);
  folder.write("digits/t10k-labels.idx1-ubyte", "");
  EXPECT_THAT([] { open_dataset(digits_job()); },
              testing::ThrowsMessage<Error>(testing::HasSubstr(folder.path())));
}

TEST(Digits, RefusesAPixelAboveSixteen) {
  const TestFolder folder;
  std::filesystem::create_directory(folder.file("digits"));
  const std::string labels = idx_bytes({2}, std::string("\0\1", 2));
  folder.write("digits/train-labels.idx1-ubyte", labels);
  folder.write("digits/t10k-labels.idx1-ubyte", labels);
  folder.write("digits/train-images.idx3-ubyte", idx_bytes({2, 1, 1}, "\x10\x11"));
  folder.write("digits/t10k-images.idx3-ubyte", idx_bytes({2, 1, 1}, "\x10\x10"));
  const Share share(folder.path());
  EXPECT_THAT([] { open_dataset(digits_job()); },
              testing::ThrowsMessage<Error>(testing::AllOf(
                  testing::HasSubstr("train-images.idx3-ubyte"), testing::HasSubstr("got 17"))));
}

TEST(Digits, HoldsTheFirstSamplesUpToTheKeys) {
  Job job = digits_job();
  const std::string whole = open_dataset(job)->digest();
  job.train_samples = 100;
  job.test_samples = 359;
  const auto data = open_dataset(job);
  EXPECT_EQ(data->size(Split::kTrain), 100);
  EXPECT_EQ(classes_of(*data), 10);
  EXPECT_NE(data->digest(), whole);
  job.train_samples = 1439;
  EXPECT_THAT([&] { open_dataset(job); },
              testing::ThrowsMessage<Error>(testing::AllOf(testing::HasSubstr("train-samples"),
                                                           testing::HasSubstr("1438"),
                                                           testing::HasSubstr("1439"))));
}

TEST(Dataset, RefusesAnUnknownName) {
  Job job;
  job.dataset = "imagenet";
  EXPECT_THAT([&] { open_dataset(job); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("imagenet")));
}

}  // namespace
}  // namespace pushpull

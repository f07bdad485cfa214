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

namespace pushpull {
namespace {

Job digits_job() {
  Job job;
  job.dataset = "digits";
  return job;
}

TEST(Digits, HoldsAllSamplesWithAFifthForTheTest) {
  const auto data = open_dataset(digits_job());
  EXPECT_EQ(data->train_size(), 1438);
  EXPECT_EQ(data->test_size(), 359);
  EXPECT_EQ(data->classes(), 10);
  EXPECT_EQ(data->input(), (InputShape{1, 8, 8}));
}

TEST(Digits, ReadsTheFirstDigitAsPublished) {
  const auto data = open_dataset(digits_job());
  std::vector<float> image(64);
  int32_t label = -1;
  data->read_train(std::vector<int64_t>{0}, image.data(), &label);
  EXPECT_EQ(label, 0);
  const std::vector<float> row = {0, 0, 5, 13, 9, 1, 0, 0};
  for (size_t i = 0; i < row.size(); ++i) EXPECT_EQ(image[i], row[i] / 16.0F);
  data->read_test(std::vector<int64_t>{0}, image.data(), &label);
  EXPECT_EQ(label, 4);  // the original file's sample 4
}

TEST(Digits, PixelsAreSixteenthsUpToOne) {
  const auto data = open_dataset(digits_job());
  std::vector<int64_t> indices(1438);
  std::iota(indices.begin(), indices.end(), 0);
  std::vector<float> images(indices.size() * 64);
  std::vector<int32_t> labels(1438);
  data->read_train(indices, images.data(), labels.data());
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
  EXPECT_EQ(data->train_size(), 100);
  EXPECT_EQ(data->classes(), 10);
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

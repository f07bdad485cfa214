#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "common/base/error.h"
#include "common/job/job.h"
#include "datasets/image_set.h"
#include "tests/common/thrown.h"
#include "tests/datasets/idx_writer.h"
#include "tests/datasets/images.h"

namespace pushpull::cifar10_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kPlane = 32 * 32;

// An image of three colours, each of one value.
std::string record_of(int label, int red, int green, int blue) {
  std::string bytes(1, static_cast<char>(label));
  for (const int colour : {red, green, blue}) bytes.append(kPlane, static_cast<char>(colour));
  return bytes;
}

class Cifar10 : public testing::Test {
 protected:
  Cifar10() {
    job_.dataset = "cifar10";
    job_.data_dir = folder_.path();
    for (int n = 1; n <= 5; ++n) {
      folder_.write("data_batch_" + std::to_string(n) + ".bin",
                    record_of(n, 51 * n, 0, 255) + record_of(0, 10 * n, 20, 30));
    }
    folder_.write("test_batch.bin", record_of(9, 1, 2, 3));
  }

  std::string failure(ErrorCode code = ErrorCode::kData) const {
    return thrown(code, [&] { open_dataset(job_); });
  }

  TestFolder folder_;
  Job job_;
};

TEST_F(Cifar10, HasColoursRowsAndColumns) {
  const auto data = open_dataset(job_);
  EXPECT_EQ(data->fields(), image_fields({3, 32, 32}, 10));
  EXPECT_EQ(data->size(Split::kTrain), 10);
  EXPECT_EQ(data->size(Split::kTest), 1);
  const Images train = read_images(*data, Split::kTrain, {8, 3, 2});
  EXPECT_THAT(train.labels, ElementsAre(5, 0, 2));
  EXPECT_EQ(train.images[0], 1.0F);
  EXPECT_EQ(train.images[kPlane], 0.0F);
  EXPECT_EQ(train.images[2 * kPlane], 1.0F);
  EXPECT_EQ(train.images[3 * kPlane], 20.0F / 255.0F);
  EXPECT_EQ(train.images[5 * kPlane - 1], 20.0F / 255.0F);
  const Images test = read_images(*data, Split::kTest, {0});
  EXPECT_THAT(test.labels, ElementsAre(9));
  EXPECT_EQ(test.images[3 * kPlane - 1], 3.0F / 255.0F);
}

TEST_F(Cifar10, UsesTheFirstSamplesAndTheDigestIsOfThose) {
  job_.train_samples = 3;
  const auto data = open_dataset(job_);
  EXPECT_EQ(data->size(Split::kTrain), 3);
  folder_.write("data_batch_5.bin", record_of(1, 1, 1, 1));
  EXPECT_EQ(open_dataset(job_)->digest(), data->digest());
  folder_.write("data_batch_2.bin", record_of(1, 1, 1, 1));
  EXPECT_NE(open_dataset(job_)->digest(), data->digest());
  job_.train_samples = 11;
  EXPECT_THAT(failure(ErrorCode::kUsage), HasSubstr("train-samples: expected at most 8"));
}

TEST_F(Cifar10, NamesFileAndRecordOfTheMistake) {
  const std::string path = folder_.file("data_batch_3.bin");
  const std::string good = record_of(1, 1, 1, 1);
  folder_.write("data_batch_3.bin", good + record_of(10, 1, 1, 1));
  EXPECT_THAT(failure(), HasSubstr(path + ": record 1: expected a label from 0 to 9, got 10"));
  folder_.write("data_batch_3.bin", good + good.substr(0, 100));
  EXPECT_THAT(failure(), HasSubstr(path + ": expected records of 3073 bytes, got 3173 bytes, which "
                                          "end in record 1"));
  folder_.write("data_batch_3.bin", "");
  EXPECT_THAT(failure(), HasSubstr(path + ": expected records of 3073 bytes, got 0 bytes"));
  folder_.remove("data_batch_3.bin");
  EXPECT_THAT(failure(), HasSubstr(path));
  job_.data_dir.clear();
  EXPECT_THAT(failure(ErrorCode::kUsage), HasSubstr("data-dir"));
}

// Seeded mutations of the test file: each is read, with labels below 10, or refused.
TEST_F(Cifar10, DamagedFilesAreReadOrRefused) {
  std::mt19937_64 random(1);
  int read = 0;
  constexpr int kMutations = 500;
  for (int n = 0; n < kMutations; ++n) {
    std::string bytes = record_of(9, 1, 2, 3) + record_of(4, 5, 6, 7);
    bytes[random() % 2 == 0 ? 0 : 3073] = static_cast<char>(random() % 256);
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    if (random() % 4 == 0) bytes[random() % 3073] = '\xff';
    folder_.write("test_batch.bin", bytes);
    try {
      const auto data = open_dataset(job_);
      ++read;
      for (const int32_t label : read_images(*data, Split::kTest, {0, 1}).labels) {
        ASSERT_LT(label, 10);
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kData);
      ASSERT_THAT(error.what(), HasSubstr("test_batch.bin"));
    }
  }
  EXPECT_GT(read, 5);  // other labels below 10
  EXPECT_LT(read, kMutations / 2);
}

}  // namespace
}  // namespace pushpull::cifar10_test

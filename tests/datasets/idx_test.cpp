#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/error.h"
#include "common/job/job.h"
#include "datasets/image_set.h"
#include "tests/common/thrown.h"
#include "tests/datasets/idx_writer.h"
#include "tests/datasets/images.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::unique_ptr<Dataset> open(const std::string& dir) {
  Job job;
  job.dataset = "idx";
  job.data_dir = dir;
  return open_dataset(job);
}

// Returns the message of the kData error of opening the folder; it must be one line.
std::string failure(const std::string& dir) {
  return thrown(ErrorCode::kData, [&] { open(dir); });
}

class Idx : public testing::Test {
 protected:
  Idx() { folder_.write_small(); }
  TestFolder folder_;
};

TEST_F(Idx, ReadsPixelsOver255AndLabels) {
  const auto data = open(folder_.path());
  EXPECT_EQ(data->size(Split::kTrain), 6);
  EXPECT_EQ(data->size(Split::kTest), 3);
  EXPECT_EQ(classes_of(*data), 3);
  EXPECT_EQ(shape_of(*data), (std::vector<int64_t>{1, 2, 3}));
  const Images train = read_images(*data, Split::kTrain, {5, 1});
  EXPECT_THAT(train.labels, testing::ElementsAre(2, 1));
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(train.images[i], static_cast<float>(30 + i) / 255.0F);
    EXPECT_EQ(train.images[6 + i], static_cast<float>(6 + i) / 255.0F);
  }
  const Images test = read_images(*data, Split::kTest, {2});
  EXPECT_EQ(test.labels[0], 2);
  EXPECT_EQ(test.images[5], 17.0F / 255.0F);
}

TEST_F(Idx, ReadsGzipTheSame) {
  const TestFolder packed;
  packed.write_small(".gz");
  EXPECT_EQ(open(packed.path())->digest(), open(folder_.path())->digest());
}

TEST_F(Idx, ReadsNamesWithADot) {
  const std::string digest = open(folder_.path())->digest();
  for (const char* stem : {"train-images", "t10k-images", "train-labels", "t10k-labels"}) {
    const std::string kind = std::string(stem).find("images") != std::string::npos ? "3" : "1";
    std::filesystem::rename(folder_.file(std::string(stem) + "-idx" + kind + "-ubyte"),
                            folder_.file(std::string(stem) + ".idx" + kind + "-ubyte"));
  }
  EXPECT_EQ(open(folder_.path())->digest(), digest);
}

TEST_F(Idx, ReadsGzipOfSeveralMembers) {
  const std::string plain = idx_bytes({3}, std::string("\0\1\2", 3));
  folder_.remove("t10k-labels-idx1-ubyte");
  folder_.write("t10k-labels-idx1-ubyte.gz",
                gzip_bytes(plain.substr(0, 6)) + gzip_bytes(plain.substr(6)));
  EXPECT_EQ(open(folder_.path())->size(Split::kTest), 3);
}

TEST_F(Idx, ReadsChannels) {
  folder_.write("train-images-idx3-ubyte", idx_bytes({6, 3, 2, 1}, std::string(36, 'x')));
  folder_.remove("t10k-images-idx3-ubyte");
  folder_.write("t10k-images-idx4-ubyte", idx_bytes({3, 3, 2, 1}, std::string(18, 'x')));
  EXPECT_EQ(shape_of(*open(folder_.path())), (std::vector<int64_t>{3, 2, 1}));
}

TEST_F(Idx, DigestDependsOnEveryByteThatARunReads) {
  const std::string digest = open(folder_.path())->digest();
  folder_.write("t10k-labels-idx1-ubyte", idx_bytes({3}, std::string("\0\1\1", 3)));
  const std::string labels = open(folder_.path())->digest();
  EXPECT_NE(labels, digest);
  folder_.write("train-images-idx3-ubyte", idx_bytes({6, 2, 3}, std::string(36, 'x')));
  EXPECT_NE(open(folder_.path())->digest(), labels);
}

TEST_F(Idx, DataDirOfTheMachineHasPriority) {
  Job job;
  job.dataset = "idx";
  job.data_dir = "/does-not-exist";
  EXPECT_EQ(open_dataset(job, folder_.path())->size(Split::kTrain), 6);
}

TEST_F(Idx, ReadsTheFirstSamplesAndKeepsTheClasses) {
  Job job;
  job.dataset = "idx";
  job.data_dir = folder_.path();
  job.train_samples = 2;
  job.test_samples = 1;
  const auto data = open_dataset(job);
  EXPECT_EQ(data->size(Split::kTrain), 2);
  EXPECT_EQ(data->size(Split::kTest), 1);
  EXPECT_EQ(classes_of(*data), 3);
  job.test_samples = 4;
  EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { open_dataset(job); }),
              AllOf(HasSubstr("test-samples"), HasSubstr("3"), HasSubstr("got 4")));
}

TEST_F(Idx, RefusesAnIndexOutOfRange) {
  const auto data = open(folder_.path());
  EXPECT_THROW(read_images(*data, Split::kTrain, {6}), Error);
  EXPECT_THROW(read_images(*data, Split::kTest, {-1}), Error);
}

TEST_F(Idx, NamesAMissingFolder) {
  EXPECT_THAT(failure(folder_.file("none")), AllOf(HasSubstr("none"), HasSubstr("data-dir")));
}

TEST_F(Idx, RequiresAFolder) {
  EXPECT_THAT([] { open(""); }, testing::ThrowsMessage<Error>(HasSubstr("data-dir")));
}

TEST_F(Idx, NamesAMissingFile) {
  folder_.remove("t10k-images-idx3-ubyte");
  EXPECT_THAT(failure(folder_.path()), HasSubstr(folder_.file("t10k-images-idx3-ubyte")));
}

TEST_F(Idx, NamesAFolderInAFilesPlace) {
  folder_.remove("train-labels-idx1-ubyte");
  std::filesystem::create_directory(folder_.file("train-labels-idx1-ubyte"));
  EXPECT_THAT(failure(folder_.path()),
              AllOf(HasSubstr("train-labels-idx1-ubyte"), HasSubstr("expected a file")));
}

// A damaged file and the text that its message must contain.
struct BadFile {
  const char* title;
  const char* file;
  std::string bytes;
  std::vector<const char*> says;
};

void PrintTo(const BadFile& bad, std::ostream* out) { *out << bad.title; }  // NOLINT: gtest's name

constexpr uint32_t kHuge = 0xffffffff;
constexpr char kPixels[] = "pppppppppppppppppppppppppppppppppppp";  // 6 of 2x3

std::vector<BadFile> bad_files() {
  const char* images = "train-images-idx3-ubyte";
  const char* labels = "train-labels-idx1-ubyte";
  const std::string good = idx_bytes({6, 2, 3}, kPixels);
  return {
      {"Empty", images, "", {"no bytes"}},
      {"ShorterThanTheMagic", images, good.substr(0, 3), {"got 3 bytes"}},
      {"ShorterThanTheHeader", images, good.substr(0, 13), {"16 bytes", "got 13"}},
      {"NotIdx", images, "<!DOCTYPE html>", {"0000", "3c21444f"}},
      {"GzipWithoutItsEnding", images, gzip_bytes(good), {"1f8b", ".gz"}},
      {"OtherType", images, std::string("\0\0\x0d\3", 4) + good.substr(4), {"type 8", "type 13"}},
      {"RankZero", images, std::string("\0\0\x08\0", 4), {"1 to 4", "got 0"}},
      {"RankFive", images, idx_bytes({6, 1, 1, 2, 3}, kPixels), {"1 to 4", "got 5"}},
      {"ImagesOfRankTwo", images, idx_bytes({6, 6}, kPixels), {"NxHxW", "6x6"}},
      {"LabelsOfRankThree", labels, good, {"1 dimension", "6x2x3"}},
      {"Truncated", images, good.substr(0, 51), {"52", "6x2x3", "got 51"}},
      {"TrailingByte", images, good + "x", {"52", "got 53"}},
      {"NoSamples", images, idx_bytes({0, 2, 3}, ""), {"at least 1", "0x2x3"}},
      {"ForgedCount", images, idx_bytes({kHuge, 2, 3}, kPixels), {"4294967295x2x3", "got 52"}},
      {"OverflowingDims", images, idx_bytes({kHuge, kHuge, kHuge, kHuge}, kPixels), {"can hold"}},
      {"FewerLabels", labels, idx_bytes({5}, std::string(5, '\1')), {"6 labels", "got 5"}},
      {"OtherShapeInTheTest",
       "t10k-images-idx3-ubyte",
       idx_bytes({3, 3, 2}, std::string(18, 'p')),
       {"1x2x3", "1x3x2"}},
      {"LabelBeyondTheClasses",
       "t10k-labels-idx1-ubyte",
       idx_bytes({3}, std::string("\0\1\3", 3)),
       {"below 3", "got 3 at sample 2"}},
      {"OneClass", labels, idx_bytes({6}, std::string(6, '\0')), {"at least 2 classes"}},
  };
}

class BadIdx : public testing::TestWithParam<BadFile> {};

TEST_P(BadIdx, IsNamedWithTheExpectedAndTheFoundValue) {
  const BadFile& bad = GetParam();
  TestFolder folder;
  folder.write_small();
  folder.write(bad.file, bad.bytes);
  const std::string message = failure(folder.path());
  EXPECT_THAT(message, HasSubstr(folder.file(bad.file)));
  for (const char* words : bad.says) EXPECT_THAT(message, HasSubstr(words));
}

// The same content in gzip: the size is known only at the end.
TEST_P(BadIdx, IsNamedInsideGzip) {
  const BadFile& bad = GetParam();
  TestFolder folder;
  folder.write_small();
  folder.remove(bad.file);
  const std::string name = std::string(bad.file) + ".gz";
  folder.write(name, gzip_bytes(bad.bytes));
  EXPECT_THAT(failure(folder.path()), AllOf(HasSubstr(folder.file(name)), HasSubstr("expected")));
}

INSTANTIATE_TEST_SUITE_P(Files, BadIdx, testing::ValuesIn(bad_files()),
                         [](const auto& test) { return std::string(test.param.title); });

class BadGzip : public Idx {
 protected:
  BadGzip() { folder_.remove("train-images-idx3-ubyte"); }
  std::string failure_of(const std::string& bytes) {
    folder_.write("train-images-idx3-ubyte.gz", bytes);
    std::string message = failure(folder_.path());
    EXPECT_THAT(message, HasSubstr(folder_.file("train-images-idx3-ubyte.gz")));
    return message;
  }
  const std::string good_ = gzip_bytes(idx_bytes({6, 2, 3}, kPixels));
};

TEST_F(BadGzip, NotGzipAtAll) {
  EXPECT_THAT(failure_of(idx_bytes({6, 2, 3}, kPixels)), HasSubstr("remove .gz"));
}

TEST_F(BadGzip, CutAnywhere) {
  for (size_t bytes = 0; bytes < good_.size(); ++bytes) {
    EXPECT_THAT(failure_of(good_.substr(0, bytes)), HasSubstr("ends early")) << bytes;
  }
}

TEST_F(BadGzip, WrongChecksum) {
  std::string bytes = good_;
  bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 1);
  EXPECT_THAT(failure_of(bytes), HasSubstr("incorrect"));
}

TEST_F(BadGzip, BytesAfterTheEnd) {
  EXPECT_THAT(failure_of(good_ + "garbage"), HasSubstr("damage"));
  EXPECT_THAT(failure_of(good_ + gzip_bytes("x")), HasSubstr("got more"));
}

}  // namespace
}  // namespace pushpull

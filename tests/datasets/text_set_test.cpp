#include "datasets/text_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "common/base/error.h"
#include "common/job/job.h"
#include "tests/common/thrown.h"
#include "tests/datasets/idx_writer.h"
#include "tests/datasets/small_tokenizer.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

struct Windows {
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::vector<int32_t>> targets;
};

Windows read_windows(const Dataset& data, Split split, int64_t epoch = 0) {
  std::vector<int64_t> all(static_cast<size_t>(data.size(split)));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  const BatchLayout layout(data.fields(), std::ssize(all));
  std::vector<float> block(layout.words());
  data.read({split, epoch, all, layout}, block.data());
  const int64_t sequence = data.fields().fields.at(0).size();
  Windows out;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto begin = static_cast<int64_t>(i) * sequence;
    const int32_t* ids = as_ints(block.data() + layout.offset(0)) + begin;
    const int32_t* targets = as_ints(block.data() + layout.offset(1)) + begin;
    out.ids.emplace_back(ids, ids + sequence);
    out.targets.emplace_back(targets, targets + sequence);
  }
  return out;
}

// The 100 characters from U+0100 on: the id of each is its place.
std::string hundred() {
  std::string text;
  for (int i = 0; i < 100; ++i) {
    text += static_cast<char>(0xc4 + i / 64);
    text += static_cast<char>(0x80 + i % 64);
  }
  return text;
}

class Text : public testing::Test {
 protected:
  Text() {
    job_.dataset = "text";
    job_.sequence = 8;
    job_.data_dir = folder_.file("text.txt");
    folder_.write("text.txt", hundred());
  }

  std::unique_ptr<Dataset> open() const { return open_dataset(job_); }

  std::string failure(ErrorCode code) const {
    return thrown(code, [&] { open(); });
  }

  TestFolder folder_;
  Job job_;
};

TEST_F(Text, HasIdsAndTheNextTokenAsTarget) {
  const auto data = open();
  EXPECT_EQ(data->fields().names(), "ids, target");
  EXPECT_EQ(data->fields().fields[0], (FieldInfo{"ids", FieldType::kInt, {8}, 0, 100}));
  EXPECT_EQ(data->fields().fields[1], (FieldInfo{"target", FieldType::kInt, {8}, -1, 100}));
  for (const int64_t epoch : {0, 1, 7}) {
    const Windows train = read_windows(*data, Split::kTrain, epoch);
    for (size_t w = 0; w < train.ids.size(); ++w) {
      for (size_t i = 0; i < 8; ++i) EXPECT_EQ(train.targets[w][i], train.ids[w][i] + 1);
    }
  }
}

TEST_F(Text, TrainingWindowsTileTheFirstNineTenths) {
  const auto data = open();
  EXPECT_EQ(data->size(Split::kTrain), 10) << "90 tokens hold 10 windows of 8 for every shift";
  std::set<int32_t> shifts;
  for (int64_t epoch = 0; epoch < 100; ++epoch) {
    const Windows train = read_windows(*data, Split::kTrain, epoch);
    const int32_t shift = train.ids[0][0];
    shifts.insert(shift);
    for (size_t w = 0; w < train.ids.size(); ++w) {
      EXPECT_EQ(train.ids[w][0], shift + static_cast<int32_t>(w) * 8);
    }
    EXPECT_LT(train.targets.back().back(), 90);
  }
  EXPECT_THAT(shifts, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_F(Text, TheShiftDependsOnSeedAndEpochAlone) {
  const auto shifts = [this] {
    const auto data = open();
    std::vector<int32_t> found;
    for (int64_t epoch = 0; epoch < 20; ++epoch) {
      found.push_back(read_windows(*data, Split::kTrain, epoch).ids[0][0]);
    }
    return found;
  };
  const std::vector<int32_t> first = shifts();
  EXPECT_EQ(shifts(), first);
  job_.seed = 2;
  EXPECT_NE(shifts(), first);
  job_.shuffle = false;
  EXPECT_THAT(shifts(), Each(0));
}

TEST_F(Text, TestWindowsTileTheLastTenthOnce) {
  job_.sequence = 4;
  const auto data = open();
  ASSERT_EQ(data->size(Split::kTest), 3) << "10 tokens have 9 targets";
  const Windows test = read_windows(*data, Split::kTest);
  EXPECT_THAT(test.ids[0], ElementsAre(90, 91, 92, 93));
  EXPECT_THAT(test.targets[1], ElementsAre(95, 96, 97, 98));
  EXPECT_THAT(test.ids[2], ElementsAre(98, 0, 0, 0));
  EXPECT_THAT(test.targets[2], ElementsAre(99, -1, -1, -1));
  job_.sequence = 9;
  EXPECT_EQ(open()->size(Split::kTest), 1) << "no window without a target";
}

TEST_F(Text, KeepsTheFirstSamplesThatTheJobWants) {
  job_.train_samples = 3;
  job_.test_samples = 1;
  EXPECT_EQ(open()->size(Split::kTrain), 3);
  EXPECT_EQ(open()->size(Split::kTest), 1);
  job_.train_samples = 11;
  EXPECT_THAT(failure(ErrorCode::kUsage),
              AllOf(HasSubstr("train-samples"), HasSubstr("10"), HasSubstr("11")));
}

TEST_F(Text, ReadsTheTxtFilesOfAFolderInOrder) {
  const TestFolder parts;
  const std::string text = hundred();
  parts.write("b.txt", text.substr(50));
  parts.write("a.txt", text.substr(0, 50));
  parts.write("c.md", "\xff");
  const std::string whole = open()->digest();
  job_.data_dir = parts.path();
  EXPECT_EQ(open()->digest(), whole);
  EXPECT_EQ(open_dataset(job_, folder_.file("text.txt"))->digest(), whole);
}

TEST_F(Text, TheDigestChangesWithTextTokenizerAndWindows) {
  std::set<std::string> digests = {open()->digest()};
  job_.sequence = 7;
  digests.insert(open()->digest());
  job_.tokenizer = "bpe";
  digests.insert(open()->digest());
  std::string other = hundred();
  std::swap(other[1], other[3]);
  folder_.write("text.txt", other);
  digests.insert(open()->digest());
  EXPECT_EQ(digests.size(), 4U);
}

TEST_F(Text, TrainsABpeOfTheSizeThatTheJobWants) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the cat sat on mat " + std::to_string(i) + "\n";
  folder_.write("text.txt", text);
  job_.tokenizer = "bpe";
  job_.vocab = 270;
  const auto data = open();
  ASSERT_NE(data->tokenizer(), nullptr);
  EXPECT_EQ(data->tokenizer()->kind(), "bpe");
  EXPECT_EQ(data->tokenizer()->size(), 270);
  EXPECT_EQ(data->fields().fields[0].limit, 270);
  EXPECT_EQ(open()->tokenizer()->to_json(), data->tokenizer()->to_json());
  const Windows train = read_windows(*data, Split::kTrain);
  EXPECT_THAT(text, HasSubstr(data->tokenizer()->decode(train.ids[3])));
  job_.vocab = 256;
  EXPECT_THAT(failure(ErrorCode::kUsage), AllOf(HasSubstr("vocab"), HasSubstr("257")));
}

TEST_F(Text, ReadsATokenizerFile) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "the cat sat at the sea";
  folder_.write("text.txt", text);
  folder_.write("tokenizer.json", kSmallTokenizer);
  job_.tokenizer = "bpe";
  job_.tokenizer_file = folder_.file("tokenizer.json");
  const auto data = open();
  EXPECT_EQ(data->fields().fields[0].limit, 34);
  job_.tokenizer = "char";
  EXPECT_THAT(failure(ErrorCode::kUsage),
              AllOf(HasSubstr("tokenizer.json"), HasSubstr("tokenizer = bpe")));
  folder_.write("text.txt", text + "\n" + text + "fin\n");
  job_.tokenizer = "bpe";
  EXPECT_THAT(failure(ErrorCode::kData),
              AllOf(HasSubstr("text.txt: byte 4401 (line 2)"), HasSubstr("U+0066")));
}

TEST_F(Text, ReadsACharTokenizerFromItsFile) {
  folder_.write("tokenizer.json", open()->tokenizer()->to_json());
  const std::string whole = open()->digest();
  job_.tokenizer_file = folder_.file("tokenizer.json");
  EXPECT_EQ(open()->digest(), whole);
}

TEST_F(Text, TakesAGivenTokenizerInPlaceOfTheJobs) {
  const std::string json = open()->tokenizer()->to_json();
  folder_.write("text.txt", hundred().substr(20, 120));
  const auto own = open();
  const auto data = open_dataset(job_, "", json);
  EXPECT_EQ(own->tokenizer()->size(), 60);
  EXPECT_EQ(data->tokenizer()->size(), 100);
  EXPECT_EQ(read_windows(*data, Split::kTest).ids[0][0],
            read_windows(*own, Split::kTest).ids[0][0] + 10);
  EXPECT_NE(data->digest(), own->digest());
}

TEST_F(Text, NamesTheFileAndTheByteOfBadText) {
  folder_.write("text.txt", "one\ntwo\n\xff");
  EXPECT_THAT(failure(ErrorCode::kData),
              AllOf(HasSubstr("text.txt: byte 8 (line 3)"), HasSubstr("UTF-8")));
  const TestFolder parts;
  parts.write("a.txt", hundred());
  parts.write("b.txt", "two\xc3");
  job_.data_dir = parts.path();
  EXPECT_THAT(failure(ErrorCode::kData), HasSubstr("b.txt: byte 3 (line 1)"));
}

TEST_F(Text, NamesATextThatIsMissingEmptyOrTooShort) {
  folder_.write("text.txt", "");
  EXPECT_THAT(failure(ErrorCode::kData), HasSubstr("expected text, got no bytes"));
  folder_.write("text.txt", "abcdefghij");
  EXPECT_THAT(failure(ErrorCode::kData),
              AllOf(HasSubstr("text.txt"), HasSubstr("at least 16 tokens"), HasSubstr("got 9")));
  job_.sequence = 4;
  EXPECT_THAT(failure(ErrorCode::kData), AllOf(HasSubstr("last tenth"), HasSubstr("got 1")));
  job_.data_dir = folder_.file("none.txt");
  EXPECT_THAT(failure(ErrorCode::kData), HasSubstr("none.txt: no such file"));
  const TestFolder empty;
  job_.data_dir = empty.path();
  EXPECT_THAT(failure(ErrorCode::kData), HasSubstr(".txt, got none"));
  job_.data_dir = "/dev/null";
  EXPECT_THAT(failure(ErrorCode::kData), HasSubstr("/dev/null"));
  job_.data_dir = "";
  EXPECT_THAT(failure(ErrorCode::kUsage), HasSubstr("data-dir"));
}

}  // namespace
}  // namespace pushpull

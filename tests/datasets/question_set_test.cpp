#include "datasets/question_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "common/base/error.h"
#include "common/job/job.h"
#include "tests/common/thrown.h"
#include "tests/datasets/idx_writer.h"
#include "tests/datasets/questions.h"

namespace pushpull::question_set_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<int32_t> values;
};
using Tensors = std::map<std::string, Tensor>;

// Returns a safetensors file of I32 tensors.
std::string file_of(const Tensors& tensors, const std::string& metadata,
                    const std::string& dtype = "I32") {
  std::string header = "{\"__metadata__\":" + metadata;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    std::string shape;
    for (const int64_t d : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(d);
    const size_t bytes = tensor.values.size() * sizeof(int32_t);
    header += ",\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape +
              "],\"data_offsets\":[" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + bytes) + "]}";
    data.append(reinterpret_cast<const char*>(tensor.values.data()), bytes);
  }
  header += "}";
  std::string bytes(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + data;
}

// Two questions of 6 tokens: the answer of the first is tokens 3 and 4; the second has none.
Tensors two_questions() {
  return {{"ids", {{2, 6}, {1, 5, 2, 7, 8, 2, 1, 6, 2, 9, 2, 0}}},
          {"mask", {{2, 6}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}}},
          {"types", {{2, 6}, {0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 0}}},
          {"start", {{2}, {3, -1}}},
          {"end", {{2}, {4, -1}}},
          {"class", {{2}, {3, 0}}}};
}

class Questions : public testing::Test {
 protected:
  Questions() {
    job_.dataset = "qa";
    job_.sequence = 6;
    job_.data_dir = folder_.path();
    write("train", two_questions());
    write("test", two_questions());
  }

  void write(const std::string& split, const Tensors& tensors,
             const std::string& metadata = R"({"vocab":"10"})") const {
    folder_.write(split + ".safetensors", file_of(tensors, metadata));
  }

  std::unique_ptr<Dataset> open() const { return open_dataset(job_); }

  // Returns the message of the refusal, or "".
  std::string failure(ErrorCode code = ErrorCode::kData) const {
    return thrown(code, [&] { open(); });
  }

  // Returns the refusal of a test file in which one tensor has these values.
  std::string failure_with(const std::string& name, size_t place, int32_t value) const {
    Tensors tensors = two_questions();
    tensors.at(name).values.at(place) = value;
    write("test", tensors);
    return failure();
  }

  TestFolder folder_;
  Job job_;
};

TEST_F(Questions, HasTheFieldsOfTheFiles) {
  const auto data = open();
  EXPECT_EQ(data->fields(), question_fields(6, 10, 5));
  EXPECT_EQ(data->size(Split::kTrain), 2);
  EXPECT_EQ(data->size(Split::kTest), 2);
  const std::vector<Question> all = read_questions(*data, Split::kTest, {1, 0});
  EXPECT_THAT(all[1].ids, ElementsAre(1, 5, 2, 7, 8, 2));
  EXPECT_THAT(all[1].mask, ElementsAre(1, 1, 1, 1, 1, 1));
  EXPECT_THAT(all[1].types, ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_EQ(all[1].start, 3);
  EXPECT_EQ(all[1].end, 4);
  EXPECT_EQ(all[1].start_position, 3.0F / 5.0F);
  EXPECT_EQ(all[1].end_position, 4.0F / 5.0F);
  EXPECT_EQ(all[1].kind, 3);
  EXPECT_THAT(all[0].mask, ElementsAre(1, 1, 1, 1, 1, 0));
  EXPECT_EQ(all[0].start, kNoTarget);
  EXPECT_EQ(all[0].end, kNoTarget);
  EXPECT_EQ(all[0].start_position, 0.0F);
  EXPECT_EQ(all[0].kind, 0);
}

TEST_F(Questions, WithoutClassesItIsWhetherThereIsAnAnswer) {
  Tensors tensors = two_questions();
  tensors.erase("class");
  write("test", tensors);
  EXPECT_THAT(failure(), HasSubstr("test.safetensors: expected a tensor class, as " +
                                   folder_.file("train.safetensors") + ", got none"));
  write("train", tensors);
  const std::vector<Question> all = read_questions(*open(), Split::kTrain);
  EXPECT_EQ(all[0].kind, 1);
  EXPECT_EQ(all[1].kind, 0);
}

TEST_F(Questions, TakesVocabularyAndClassesFromTheMetadata) {
  write("train", two_questions(), R"({"vocab":"12","classes":"4"})");
  EXPECT_EQ(open()->fields(), question_fields(6, 12, 4));
  job_.vocab = 11;
  EXPECT_EQ(open()->fields(), question_fields(6, 11, 4)) << "the key comes first";
  job_.vocab = 0;
  write("train", two_questions(), R"({"vocab":"12","classes":"3"})");
  EXPECT_THAT(failure(), HasSubstr("record 0: class: expected 0 to 2, got 3"));
  write("train", two_questions(), "{}");
  EXPECT_THAT(failure(), HasSubstr("metadata vocab, got none; set the key vocab"));
  for (const char* bad : {"0", "1000001", "ten", ""}) {
    write("train", two_questions(), std::string(R"({"vocab":")") + bad + "\"}");
    EXPECT_THAT(failure(), HasSubstr("metadata vocab: expected a number from 1 to 1000000, got"));
  }
}

TEST_F(Questions, UsesTheFirstSamplesAndTheDigestIsOfThose) {
  const std::string all = open()->digest();
  EXPECT_EQ(open()->digest(), all);
  job_.train_samples = 1;
  EXPECT_EQ(open()->size(Split::kTrain), 1);
  const std::string one = open()->digest();
  EXPECT_NE(one, all);
  Tensors tensors = two_questions();
  tensors["ids"].values[9] = 8;
  write("train", tensors);
  EXPECT_EQ(open()->digest(), one) << "the second record is not used";
  tensors["ids"].values[3] = 8;
  write("train", tensors);
  EXPECT_NE(open()->digest(), one);
  job_.test_samples = 3;
  EXPECT_THAT(failure(ErrorCode::kUsage), HasSubstr("test-samples: expected at most 2"));
}

TEST_F(Questions, NamesFileAndRecordOfABadValue) {
  const std::string test = folder_.file("test.safetensors");
  EXPECT_THAT(failure_with("ids", 7, 10),
              HasSubstr(test + ": record 1: ids: expected 0 to 9, got 10"));
  EXPECT_THAT(failure_with("ids", 0, -1), HasSubstr("record 0: ids: expected 0 to 9, got -1"));
  EXPECT_THAT(failure_with("mask", 11, 2), HasSubstr("record 1: mask: expected 0 to 1, got 2"));
  EXPECT_THAT(failure_with("types", 1, -7), HasSubstr("record 0: types: expected 0 to 1, got -7"));
  EXPECT_THAT(failure_with("start", 0, 6), HasSubstr("record 0: start: expected -1 to 5, got 6"));
  EXPECT_THAT(failure_with("end", 0, -2), HasSubstr("record 0: end: expected -1 to 5, got -2"));
  EXPECT_THAT(
      failure_with("end", 0, -1),
      HasSubstr("record 0: expected start and end, or -1 for both, got start 3 and end -1"));
  EXPECT_THAT(failure_with("start", 1, 3), HasSubstr("got start 3 and end -1"));
  EXPECT_THAT(failure_with("end", 0, 2),
              HasSubstr("record 0: end: expected at least start, 3, got 2"));
  EXPECT_THAT(failure_with("class", 1, 5), HasSubstr("record 1: class: expected 0 to 4, got 5"));
  EXPECT_THAT(failure_with("mask", 4, 0),
              HasSubstr("record 0: expected an answer where mask is 1, got end 4, where it is 0"));
  Tensors tensors = two_questions();
  for (size_t i = 6; i < 12; ++i) tensors["mask"].values[i] = 0;
  write("test", tensors);
  EXPECT_THAT(failure(), HasSubstr("record 1: mask: expected at least one 1, got only 0"));
}

TEST_F(Questions, NamesTheTensorOfABadFile) {
  for (const char* name : {"ids", "mask", "types", "start", "end"}) {
    Tensors tensors = two_questions();
    tensors.erase(name);
    write("train", tensors);
    EXPECT_THAT(failure(), HasSubstr("train.safetensors: expected a tensor " + std::string(name) +
                                     ", got none"));
  }
  Tensors tensors = two_questions();
  tensors["clas"] = tensors["class"];
  write("train", tensors);
  EXPECT_THAT(failure(), HasSubstr("types, start, end and class, got clas"));
  tensors = two_questions();
  tensors["end"] = {{3}, {4, -1, -1}};
  write("train", tensors);
  EXPECT_THAT(failure(), HasSubstr("end: expected the shape [2], as start, got [3]"));
  tensors = two_questions();
  tensors["mask"].shape = {6, 2};
  write("train", tensors);
  EXPECT_THAT(failure(),
              HasSubstr("mask: expected the shape [2, 6], as many records as start, got [6, 2]"));
  tensors = two_questions();
  tensors["ids"].shape = {2, 5};
  tensors["ids"].values.resize(10);
  write("train", tensors);
  EXPECT_THAT(
      failure(),
      HasSubstr("ids: expected records of 6 tokens, the key sequence, got 5; set sequence = 5"));
  tensors = {};
  for (const auto& [name, tensor] : two_questions()) tensors[name] = {{0}, {}};
  write("train", tensors);
  EXPECT_THAT(failure(), HasSubstr("start: expected the shape [N] with N at least 1, got [0]"));
  folder_.write("train.safetensors", file_of(two_questions(), "{}", "F32"));
  EXPECT_THAT(failure(), HasSubstr("dtype is \"F32\", only I32 is supported"));
  const std::string whole = file_of(two_questions(), "{}");
  folder_.write("train.safetensors", whole.substr(0, whole.size() - 4));
  EXPECT_THAT(failure(), HasSubstr("truncated"));
  folder_.remove("train.safetensors");
  EXPECT_THAT(failure(), HasSubstr(folder_.file("train.safetensors")));
}

// Seeded mutations of a file: each is opened, with values in the range of their fields, or refused.
TEST_F(Questions, DamagedFilesAreReadOrRefused) {
  std::mt19937_64 random(1);
  const std::string whole = file_of(two_questions(), R"({"vocab":"10"})");
  int opened = 0;
  constexpr int kMutations = 1000;
  constexpr size_t kDataBytes = 42 * sizeof(int32_t);
  for (int n = 0; n < kMutations; ++n) {
    std::string bytes = whole;
    for (uint64_t k = 1 + random() % 2; k > 0; --k) {
      // half of the edits hit the data
      const size_t part = random() % 2 == 0 ? std::min(kDataBytes, bytes.size()) : bytes.size();
      const size_t at = bytes.size() - 1 - random() % part;
      if (random() % 8 == 0) {
        bytes.resize(std::max<size_t>(at, 1));
      } else {
        bytes[at] = static_cast<char>(random() % 2 == 0 ? random() % 256 : bytes[at] ^ 1);
      }
    }
    folder_.write("train.safetensors", bytes);
    try {
      const auto data = open();
      ++opened;
      for (const Question& q : read_questions(*data, Split::kTrain)) {
        for (const int32_t id : q.ids) ASSERT_LT(id, data->fields().fields[0].limit);
        ASSERT_LT(q.end, 6);
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kData) << error.what();
      ASSERT_THAT(error.what(), HasSubstr("train.safetensors"));
    }
  }
  EXPECT_GT(opened, 20);  // another id may be valid
  EXPECT_LT(opened, kMutations / 2);
}

}  // namespace
}  // namespace pushpull::question_set_test

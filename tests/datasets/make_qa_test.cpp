// scripts/make_qa.py writes files that `dataset = qa` reads. Skipped without python3.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>

#include "common/job/job.h"
#include "tests/datasets/idx_writer.h"
#include "tests/datasets/questions.h"

namespace pushpull::make_qa_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Ended {
  int status;
  std::string text;
};

Ended shell(const std::string& command) {
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  std::string text;
  std::array<char, 4096> part{};
  while (fgets(part.data(), part.size(), pipe) != nullptr) text += part.data();
  return {pclose(pipe), text};
}

constexpr const char* kQuestions = R"({"version": "v2.0", "data": [{"title": "t", "paragraphs": [
  {"context": "Alice met Bob in Paris. Then they went home by train, and slept.", "qas": [
    {"id": "1", "question": "Where did Alice meet Bob?", "answers": [{"text": "in Paris", "answer_start": 14}]},
    {"id": "2", "question": "How did they travel?", "answers": [{"text": "by train", "answer_start": 44}]},
    {"id": "3", "question": "Who is Eve?", "answers": [], "is_impossible": true}]}]}]})";

class MakeQa : public testing::Test {
 protected:
  void SetUp() override {
    if (shell("python3 -c 'import json'").status != 0) GTEST_SKIP() << "no python3";
    folder_.write("questions.json", kQuestions);
  }

  Ended make(const std::string& options) const {
    return shell("python3 " PUSHPULL_SOURCE_DIR "/scripts/make_qa.py --train " +
                 folder_.file("questions.json") + " --test " + folder_.file("questions.json") +
                 " --out " + folder_.file("out") + " " + options);
  }

  std::unique_ptr<Dataset> open(int64_t sequence) const {
    Job job;
    job.dataset = "qa";
    job.sequence = sequence;
    job.data_dir = folder_.file("out");
    return open_dataset(job);
  }

  // Returns the words of these tokens of a row, by vocab.txt.
  std::string words(const Question& question, int64_t begin, int64_t end) const {
    std::ifstream file(folder_.file("out/vocab.txt"));
    std::vector<std::string> names;
    for (std::string line; std::getline(file, line);) names.push_back(line);
    std::string text;
    for (int64_t i = begin; i < end; ++i) {
      const auto id = static_cast<size_t>(question.ids.at(static_cast<size_t>(i)));
      text += (text.empty() ? "" : " ") + names.at(id);
    }
    return text;
  }

  TestFolder folder_;
};

TEST_F(MakeQa, WritesQuestionContextAndAnswer) {
  const Ended ended = make("--sequence 40 --question 10 --stride 20");
  ASSERT_EQ(ended.status, 0) << ended.text;
  EXPECT_THAT(ended.text, HasSubstr("test: 3 questions, 3 rows, 2 with an answer"));
  const auto data = open(40);
  const std::vector<Question> all = read_questions(*data, Split::kTest);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(words(all[0], 0, 8), "[CLS] where did alice meet bob ? [SEP]");
  EXPECT_EQ(words(all[0], 21, 25), "and slept . [SEP]");
  EXPECT_EQ(words(all[0], all[0].start, all[0].end + 1), "in paris");
  EXPECT_EQ(words(all[1], all[1].start, all[1].end + 1), "by train");
  EXPECT_EQ(all[2].start, kNoTarget);
  EXPECT_EQ(all[2].end, kNoTarget);
  EXPECT_EQ(all[0].kind, 1);
  EXPECT_EQ(all[2].kind, 0);
  EXPECT_EQ(std::accumulate(all[0].mask.begin(), all[0].mask.end(), 0), 25);
  EXPECT_EQ(std::accumulate(all[0].types.begin(), all[0].types.end(), 0), 17);
}

// Windows of 8 words, each 4 words after the one before, tile the context of 16 words.
TEST_F(MakeQa, CutsLongContextsIntoWindowsWithStride) {
  const Ended ended = make("--sequence 14 --question 3 --stride 4");
  ASSERT_EQ(ended.status, 0) << ended.text;
  const std::vector<Question> all = read_questions(*open(14), Split::kTrain);
  ASSERT_EQ(all.size(), 9U);
  EXPECT_EQ(words(all[0], 0, 14),
            "[CLS] where did alice [SEP] alice met bob in paris . then they [SEP]");
  EXPECT_EQ(words(all[1], 5, 13), "paris . then they went home by train");
  EXPECT_EQ(words(all[2], 5, 13), "went home by train , and slept .");
  EXPECT_EQ(words(all[0], all[0].start, all[0].end + 1), "in paris");
  EXPECT_EQ(all[1].start, kNoTarget) << "the window has only a part of the answer";
  for (const size_t window : {4, 5}) {
    EXPECT_EQ(words(all[window], all[window].start, all[window].end + 1), "by train") << window;
  }
}

TEST_F(MakeQa, NamesTheMistake) {
  EXPECT_THAT(make("--sequence 14 --question 3 --stride 9").text, HasSubstr("--stride 9"));
  folder_.write("questions.json", R"({"data": [{"paragraphs": [{"context": "a b", "qas": [
      {"id": "77", "question": "q", "answers": [{"text": "b", "answer_start": 0}]}]}]}]})");
  EXPECT_THAT(make("").text,
              HasSubstr("question 77: expected the answer 'b' at character 0, got 'a'"));
  folder_.write("questions.json", "[]");
  const Ended ended = make("");
  EXPECT_THAT(ended.text, HasSubstr("questions.json: expected SQuAD's JSON format"));
  EXPECT_EQ(WEXITSTATUS(ended.status), 2);
}

}  // namespace
}  // namespace pushpull::make_qa_test

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "common/base/error.h"
#include "common/job/job.h"
#include "datasets/dummy.h"
#include "tests/common/thrown.h"
#include "tests/datasets/questions.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::Each;
using testing::Ge;
using testing::HasSubstr;
using testing::Lt;

constexpr int32_t kFirstMarker = 7;
constexpr int32_t kFirstWord = 23;  // with 8 topics

Job question_job(int64_t sequence, int64_t vocabulary) {
  Job job;
  job.dataset = "dummy-qa";
  job.sequence = sequence;
  job.vocab = vocabulary;
  return job;
}

std::string failure(const Job& job) {
  return thrown(ErrorCode::kUsage, [&] { const DummyQa data(job); });
}

TEST(DummyQa, DeclaresTheFieldsOfQuestions) {
  const DummyQa data(question_job(48, 500));
  EXPECT_EQ(data.fields(), question_fields(48, 500, 5));
  EXPECT_EQ(data.size(Split::kTrain), 4096);
  EXPECT_EQ(data.size(Split::kTest), 1024);
  EXPECT_EQ(DummyQa(question_job(48, 0)).fields(), question_fields(48, 1024, 5));
}

TEST(DummyQa, AnEighthOfTheQuestionsHasNoAnswer) {
  const std::vector<Question> all = read_questions(DummyQa(question_job(48, 500)), Split::kTrain);
  const auto without = std::ranges::count_if(all, [](const Question& q) { return q.start < 0; });
  EXPECT_NEAR(static_cast<double>(without) / 4096, 0.125, 0.02);
  for (const Question& q : all) {
    EXPECT_EQ(q.start < 0, q.end < 0);
    EXPECT_EQ(q.start < 0, q.kind == 0);
  }
}

// Checks the rule of the header, for a small vocabulary, a short and a long sequence too.
TEST(DummyQa, QuestionAndContextGiveTheAnswer) {
  for (const auto& [sequence, vocabulary] :
       std::vector<std::pair<int64_t, int64_t>>{{48, 500}, {16, 16}, {17, 1024}, {2048, 30522}}) {
    Job job = question_job(sequence, vocabulary);
    job.train_samples = 500;
    const int32_t topics = vocabulary == 16 ? 3 : 8;
    for (const Question& q : read_questions(DummyQa(job), Split::kTrain)) {
      ASSERT_THAT(q.ids, Each(AllOf(Ge(0), Lt(vocabulary))));
      const auto context = std::ranges::find(q.ids, 2) - q.ids.begin() + 1;
      const auto tokens = std::accumulate(q.mask.begin(), q.mask.end(), int64_t{0});
      ASSERT_EQ(q.ids[0], 1);
      ASSERT_EQ(q.ids[static_cast<size_t>(tokens - 1)], 2);
      std::vector<int64_t> firsts;
      std::vector<int64_t> lasts;
      for (int64_t i = 0; i < sequence; ++i) {
        const auto at = static_cast<size_t>(i);
        ASSERT_EQ(q.mask[at], i < tokens ? 1 : 0);
        ASSERT_EQ(q.types[at], i >= context && i < tokens ? 1 : 0);
        ASSERT_EQ(q.ids[at] == 0, i >= tokens);
        if (i < context) continue;
        if (q.ids[at] == q.ids[2]) firsts.push_back(i);
        if (q.ids[at] == q.ids[2] + topics) lasts.push_back(i);
      }
      if (q.start < 0) {
        ASSERT_TRUE(firsts.empty() && lasts.empty());
        ASSERT_EQ(q.start_position, 0.0F);
        ASSERT_EQ(q.end_position, 0.0F);
        continue;
      }
      ASSERT_EQ(firsts, std::vector<int64_t>{q.start});
      ASSERT_EQ(lasts, std::vector<int64_t>{q.end});
      ASSERT_GT(q.end, q.start);
      ASSERT_LT(q.end, q.start + DummyQa::kMaxAnswer);
      ASSERT_EQ(q.kind, q.ids[1] - 2);
      const auto last = static_cast<float>(sequence - 1);
      ASSERT_EQ(q.start_position, static_cast<float>(q.start) / last);
      ASSERT_EQ(q.end_position, static_cast<float>(q.end) / last);
    }
  }
}

TEST(DummyQa, NoConstantGuessIsOftenRight) {
  std::map<std::pair<int32_t, int32_t>, int> spans;
  std::vector<int> kinds(5, 0);
  for (const Question& q : read_questions(DummyQa(question_job(48, 500)), Split::kTrain)) {
    ++kinds.at(static_cast<size_t>(q.kind));
    if (q.start >= 0) ++spans[{q.start, q.end}];
  }
  for (const auto& [span, count] : spans) EXPECT_LT(count, 4096 / 50);
  EXPECT_LT(*std::ranges::max_element(kinds), 4096 / 2);
  EXPECT_GT(*std::ranges::min_element(kinds), 4096 / 12);
}

// The context alone does not give the answer.
TEST(DummyQa, ContextsHaveMarkersOfOtherTopics) {
  int64_t markers = 0;
  int64_t tokens = 0;
  for (const Question& q : read_questions(DummyQa(question_job(48, 500)), Split::kTrain)) {
    for (size_t i = 0; i < q.ids.size(); ++i) {
      tokens += q.types[i];
      markers += q.types[i] == 1 && q.ids[i] >= kFirstMarker && q.ids[i] < kFirstWord ? 1 : 0;
    }
  }
  EXPECT_GT(markers, tokens / 5);
  EXPECT_LT(markers, tokens / 2);
}

TEST(DummyQa, ASampleDependsOnSeedAndIndexAlone) {
  Job job = question_job(48, 500);
  job.train_samples = 100;
  const std::vector<Question> some = read_questions(DummyQa(job), Split::kTrain);
  job.train_samples = 200;
  const std::vector<Question> more = read_questions(DummyQa(job), Split::kTrain);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), more.begin()));
  job.test_samples = 200;
  const std::vector<Question> test = read_questions(DummyQa(job), Split::kTest);
  for (const Question& q : test) EXPECT_EQ(std::ranges::count(more, q), 0);
  job.seed = 9;
  EXPECT_NE(read_questions(DummyQa(job), Split::kTrain), more);
}

TEST(DummyQa, TheDigestNamesTheKeysThatDefineTheData) {
  const Job job = question_job(48, 500);
  const std::string digest = DummyQa(job).digest();
  EXPECT_EQ(DummyQa(job).digest(), digest);
  for (int64_t Job::*key : {&Job::sequence, &Job::vocab, &Job::train_samples, &Job::test_samples}) {
    Job other = job;
    other.*key = 77;
    EXPECT_NE(DummyQa(other).digest(), digest);
  }
  Job other = job;
  other.seed = 77;
  EXPECT_NE(DummyQa(other).digest(), digest);
}

TEST(DummyQa, NamesTheKeyThatDoesNotFit) {
  EXPECT_THAT(failure(question_job(15, 500)), HasSubstr("sequence: expected 16 to 32768, got 15"));
  EXPECT_THAT(failure(question_job(16, 15)), HasSubstr("vocab: expected 16 to 1000000, got 15"));
  Job job = question_job(48, 500);
  job.test_samples = int64_t{1} << 40;
  EXPECT_THAT(failure(job), HasSubstr("test-samples"));
}

TEST(DummyQa, RefusesAnIndexOutOfRange) {
  const DummyQa data(question_job(16, 16));
  EXPECT_THROW(read_questions(data, Split::kTrain, {4096}), Error);
  EXPECT_THROW(read_questions(data, Split::kTest, {-1}), Error);
}

}  // namespace
}  // namespace pushpull

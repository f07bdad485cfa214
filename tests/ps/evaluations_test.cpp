#include "ps/members/evaluations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "common/net/model_wire.h"

namespace pushpull {
namespace {

const std::vector<HeadInfo> kLabel = {{"label", Metric::kAccuracy, 1}};

wire::ChunkResult chunk_of(int64_t index, const std::vector<HeadSums>& sums) {
  wire::ChunkResult out;
  out.set_chunk(index);
  to_wire(sums, &out);
  return out;
}

// A result with four counted targets of one head.
wire::ChunkResult chunk(int64_t index, int64_t correct, double loss) {
  return chunk_of(index, {{loss, 4, static_cast<double>(correct)}});
}

TEST(Evaluations, CountsEachChunkOnce) {
  Evaluations evaluations(10, 4, kLabel);
  EXPECT_EQ(evaluations.chunks(), 3);
  EXPECT_FALSE(evaluations.add(5, chunk(0, 3, 1.0)));
  EXPECT_FALSE(evaluations.add(5, chunk(0, 3, 1.0)));
  EXPECT_FALSE(evaluations.add(5, chunk_of(2, {{0.5, 2, 1.0}})));
  EXPECT_FALSE(evaluations.complete(5));
  const auto done = evaluations.add(5, chunk(1, 4, 2.5));
  ASSERT_TRUE(done);
  EXPECT_EQ(done->step, 5);
  ASSERT_EQ(done->heads.size(), 1U);
  const HeadResult& label = done->heads.front();
  EXPECT_EQ(label.info, kLabel.front());
  EXPECT_EQ(label.sums.metric, 8.0);
  EXPECT_EQ(label.sums.counted, 10);
  EXPECT_DOUBLE_EQ(label.loss().value(), 0.4);
  EXPECT_TRUE(evaluations.complete(5));
  EXPECT_FALSE(evaluations.add(5, chunk(1, 4, 2.5))) << "an evaluation completes once";
}

TEST(Evaluations, AFormulaCompletesAnEvaluationByItsNamedSums) {
  Evaluations evaluations(8, 4,
                          {kLabel.front(), {"f1", Metric::kValue, 1}, {"wer", Metric::kCost, 1}});
  const auto named = [](int64_t index, double tp) {
    wire::ChunkResult out = chunk_of(index, {{1.0, 4, 2.0}, {}, {}});
    wire::NamedSum* const sum = out.add_named();
    sum->set_name("tp");
    sum->set_value(tp);
    return out;
  };
  EXPECT_FALSE(evaluations.add(5, named(1, 0.25)));
  EXPECT_EQ(evaluations.waiting(), nullptr);
  EXPECT_FALSE(evaluations.add(5, named(0, 3.0)));
  EXPECT_FALSE(evaluations.complete(5));
  ASSERT_NE(evaluations.waiting(), nullptr);
  EXPECT_EQ(evaluations.waiting()->named, (NamedSums{{"tp", 3.25}}));
  EXPECT_FALSE(evaluations.add(5, named(0, 9.0))) << "the chunks are complete";
  EXPECT_FALSE(evaluations.take_values(6, std::vector<double>{1.0, 1.0}));
  const auto done = evaluations.take_values(5, std::vector<double>{0.75, NAN});
  ASSERT_TRUE(done);
  EXPECT_TRUE(evaluations.complete(5));
  EXPECT_EQ(evaluations.waiting(), nullptr);
  EXPECT_EQ(done->heads[0].sums.metric, 4.0);
  EXPECT_EQ(done->heads[1].value(), 0.75);
  EXPECT_EQ(done->heads[1].loss(), std::nullopt);
  EXPECT_EQ(done->heads[2].value(), std::nullopt) << "a formula may have no value";
  EXPECT_FALSE(evaluations.take_values(5, std::vector<double>{1.0, 1.0}))
      << "the first values count";
}

TEST(Evaluations, LossHasTheSameBitsInAnyOrderOfArrival) {
  std::vector<wire::ChunkResult> chunks;
  for (int i = 0; i < 40; ++i) chunks.push_back(chunk(i, i, 1.0 / (i + 0.7)));
  std::mt19937_64 random(1);
  std::optional<double> want;
  for (int round = 0; round < 20; ++round) {
    std::shuffle(chunks.begin(), chunks.end(), random);
    Evaluations evaluations(160, 4, kLabel);
    std::optional<Evaluation> done;
    for (const auto& c : chunks) done = evaluations.add(1, c);
    ASSERT_TRUE(done);
    const HeadSums& sums = done->heads.front().sums;
    EXPECT_EQ(sums.metric, 780.0);
    if (!want) want = sums.loss;
    EXPECT_EQ(sums.loss, *want);
  }
}

TEST(Evaluations, EachHeadHasItsOwnCountOfTargets) {
  const std::vector<HeadInfo> heads = {{"next", Metric::kPerplexity, 64},
                                       {"position", Metric::kMeanSquaredError, 1}};
  Evaluations evaluations(6, 4, heads);
  evaluations.add(1, chunk_of(0, {{200.0, 100, 200.0}, {4.0, 4, 4.0}}));
  const auto done = evaluations.add(1, chunk_of(1, {{40.0, 20, 40.0}, {2.0, 0, 0.0}}));
  ASSERT_TRUE(done);
  EXPECT_DOUBLE_EQ(done->heads[0].loss().value(), 2.0);
  EXPECT_DOUBLE_EQ(done->heads[0].value().value(), std::exp(2.0));
  EXPECT_DOUBLE_EQ(done->heads[1].value().value(), 1.0);
}

TEST(Evaluations, UnknownChunksAreIgnored) {
  Evaluations evaluations(4, 4, kLabel);
  EXPECT_FALSE(evaluations.add(1, chunk(-1, 4, 1)));
  EXPECT_FALSE(evaluations.add(1, chunk(1, 4, 1)));
  EXPECT_FALSE(evaluations.add(1, chunk(INT64_MAX, 4, 1)));
  EXPECT_TRUE(evaluations.add(1, chunk(0, 4, 1)));
}

TEST(Evaluations, NewerEvaluationReplacesAnUnfinishedOne) {
  Evaluations evaluations(8, 4, kLabel);
  evaluations.add(10, chunk(0, 1, 1));
  evaluations.add(20, chunk(0, 1, 1));
  ASSERT_TRUE(evaluations.add(20, chunk(1, 1, 1)));
  EXPECT_TRUE(evaluations.complete(10)) << "the older evaluation will not finish";
  EXPECT_FALSE(evaluations.add(10, chunk(1, 1, 1)));
  EXPECT_EQ(evaluations.newest()->step, 20);
}

TEST(Evaluations, WithoutTestSamplesEveryEvaluationIsComplete) {
  const Evaluations evaluations(0, 4, kLabel);
  EXPECT_TRUE(evaluations.complete(1'000'000));
  EXPECT_FALSE(evaluations.newest());
}

}  // namespace
}  // namespace pushpull

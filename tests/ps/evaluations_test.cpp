#include "ps/work/evaluations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace pushpull {
namespace {

wire::ChunkResult chunk(int64_t index, int64_t correct, double loss) {
  wire::ChunkResult out;
  out.set_chunk(index);
  out.set_correct(correct);
  out.set_loss(loss);
  return out;
}

TEST(Evaluations, CountsEachChunkOnce) {
  Evaluations evaluations(10, 4);
  EXPECT_EQ(evaluations.chunks(), 3);
  EXPECT_FALSE(evaluations.add(5, chunk(0, 3, 1.0)));
  EXPECT_FALSE(evaluations.add(5, chunk(0, 3, 1.0)));
  EXPECT_FALSE(evaluations.add(5, chunk(2, 1, 0.5)));
  EXPECT_FALSE(evaluations.complete(5));
  const auto done = evaluations.add(5, chunk(1, 4, 2.5));
  ASSERT_TRUE(done);
  EXPECT_EQ(done->step, 5);
  EXPECT_EQ(done->correct, 8);
  EXPECT_EQ(done->total, 10);
  EXPECT_DOUBLE_EQ(done->loss, 0.4);
  EXPECT_TRUE(evaluations.complete(5));
  EXPECT_FALSE(evaluations.add(5, chunk(1, 4, 2.5))) << "an evaluation completes once";
}

TEST(Evaluations, LossHasTheSameBitsInAnyOrderOfArrival) {
  std::vector<wire::ChunkResult> chunks;
  for (int i = 0; i < 40; ++i) chunks.push_back(chunk(i, i, 1.0 / (i + 0.7)));
  std::mt19937_64 random(1);
  std::optional<double> want;
  for (int round = 0; round < 20; ++round) {
    std::shuffle(chunks.begin(), chunks.end(), random);
    Evaluations evaluations(160, 4);
    std::optional<Evaluation> done;
    for (const auto& c : chunks) done = evaluations.add(1, c);
    ASSERT_TRUE(done);
    EXPECT_EQ(done->correct, 780);
    if (!want) want = done->loss;
    EXPECT_EQ(done->loss, *want);
  }
}

TEST(Evaluations, UnknownChunksAreIgnored) {
  Evaluations evaluations(4, 4);
  EXPECT_FALSE(evaluations.add(1, chunk(-1, 4, 1)));
  EXPECT_FALSE(evaluations.add(1, chunk(1, 4, 1)));
  EXPECT_FALSE(evaluations.add(1, chunk(INT64_MAX, 4, 1)));
  EXPECT_TRUE(evaluations.add(1, chunk(0, 4, 1)));
}

TEST(Evaluations, NewerEvaluationReplacesAnUnfinishedOne) {
  Evaluations evaluations(8, 4);
  evaluations.add(10, chunk(0, 1, 1));
  evaluations.add(20, chunk(0, 1, 1));
  ASSERT_TRUE(evaluations.add(20, chunk(1, 1, 1)));
  EXPECT_TRUE(evaluations.complete(10)) << "the older evaluation will not finish";
  EXPECT_FALSE(evaluations.add(10, chunk(1, 1, 1)));
  EXPECT_EQ(evaluations.newest()->step, 20);
}

TEST(Evaluations, WithoutTestSamplesEveryEvaluationIsComplete) {
  const Evaluations evaluations(0, 4);
  EXPECT_TRUE(evaluations.complete(1'000'000));
  EXPECT_FALSE(evaluations.newest());
}

}  // namespace
}  // namespace pushpull

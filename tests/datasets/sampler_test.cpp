#include "datasets/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "common/base/error.h"
#include "common/job/job.h"

namespace pushpull {
namespace {

using testing::ElementsAre;

Job small_job(bool shuffle) {
  Job job;
  job.global_batch = 4;
  job.micro_batch = 2;
  job.shuffle = shuffle;
  return job;
}

std::vector<int64_t> epoch_of(Sampler& sampler, int64_t epoch) {
  std::vector<int64_t> all;
  for (int64_t s = 0; s < sampler.steps_per_epoch(); ++s) {
    for (int64_t m = 0; m < 2; ++m) {
      const auto part = sampler.indices(epoch * sampler.steps_per_epoch() + s, m);
      all.insert(all.end(), part.begin(), part.end());
    }
  }
  return all;
}

TEST(Sampler, KeepsTheOrderWithoutShuffle) {
  Sampler sampler(small_job(false), 11);
  EXPECT_EQ(sampler.steps_per_epoch(), 2);
  EXPECT_THAT(sampler.indices(0, 0), ElementsAre(0, 1));
  EXPECT_THAT(sampler.indices(0, 1), ElementsAre(2, 3));
  EXPECT_THAT(sampler.indices(1, 1), ElementsAre(6, 7));
  EXPECT_THAT(sampler.indices(2, 0), ElementsAre(0, 1));  // the next epoch
}

TEST(Sampler, DropsTheIncompleteBatch) {
  Sampler sampler(small_job(true), 11);
  const std::vector<int64_t> seen = epoch_of(sampler, 0);
  EXPECT_EQ(seen.size(), 8U);
  EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 8U);
  EXPECT_THAT(seen, testing::Each(testing::AllOf(testing::Ge(0), testing::Lt(11))));
}

TEST(Sampler, ShufflesEachEpochDifferently) {
  Sampler sampler(small_job(true), 1000);
  const std::vector<int64_t> first = epoch_of(sampler, 0);
  const std::vector<int64_t> second = epoch_of(sampler, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set<int64_t>(second.begin(), second.end()).size(), 1000U);
  EXPECT_EQ(epoch_of(sampler, 0), first);  // an earlier epoch repeats
}

TEST(Sampler, IsEqualInEveryProcessWithTheSeed) {
  Job job = small_job(true);
  Sampler one(job, 100);
  Sampler same(job, 100);
  job.seed = 2;
  Sampler other(job, 100);
  // the second process reads in another order
  const std::vector<int64_t> late(same.indices(60, 1).begin(), same.indices(60, 1).end());
  EXPECT_EQ(epoch_of(one, 3), epoch_of(same, 3));
  EXPECT_NE(epoch_of(one, 3), epoch_of(other, 3));
  EXPECT_THAT(one.indices(60, 1), testing::ElementsAreArray(late));
}

TEST(Sampler, RefusesIndicesOutOfRange) {
  Sampler sampler(small_job(true), 8);
  EXPECT_THROW(sampler.indices(-1, 0), Error);
  EXPECT_THROW(sampler.indices(0, -1), Error);
  EXPECT_THROW(sampler.indices(0, 2), Error);
  EXPECT_THROW(Sampler(small_job(true), 3), Error);
}

}  // namespace
}  // namespace pushpull

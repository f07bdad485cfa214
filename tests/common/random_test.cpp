#include "common/base/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "common/base/error.h"

namespace pushpull {
namespace {

using testing::ElementsAre;

// Known answers from Random123's kat_vectors for "philox4x32 10". Its counter words are our counter
// (low, high), index, stream; its key words are the halves of the seed, low first.
TEST(Philox, GivesTheKnownAnswersOfRandom123) {
  EXPECT_THAT(philox(0, RandomStream{0}, 0, 0),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(philox(0xffffffffffffffff, RandomStream{0xffffffff}, 0xffffffff, 0xffffffffffffffff),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(philox(0x299f31d0a4093822, RandomStream{0x03707344}, 0x13198a2e, 0x85a308d3243f6a88),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(Uniform, FillsTheUnitIntervalEvenly) {
  // 1,000 expected per bin, standard deviation 31: five of them are a one-in-a-million accident,
  // and the seed is fixed.
  constexpr int kBins = 100;
  constexpr int kDraws = 100'000;
  std::vector<int> bins(kBins);
  double sum = 0.0;
  for (int i = 0; i < kDraws; ++i) {
    const float u = uniform01(3, RandomStream::kDummyData, 9, static_cast<uint64_t>(i));
    ASSERT_GE(u, 0.0F);
    ASSERT_LT(u, 1.0F);
    ++bins[static_cast<size_t>(u * kBins)];
    sum += u;
  }
  for (const int count : bins) EXPECT_NEAR(count, 1000, 5 * 31);
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * 0.2887 / std::sqrt(kDraws));
}

TEST(Uniform, DiffersBySeedStreamIndexAndElement) {
  const float base = uniform01(1, RandomStream::kInit, 2, 3);
  EXPECT_NE(base, uniform01(2, RandomStream::kInit, 2, 3));
  EXPECT_NE(base, uniform01(uint64_t{1} << 32 | 1, RandomStream::kInit, 2, 3));
  EXPECT_NE(base, uniform01(1, RandomStream::kDummyData, 2, 3));
  EXPECT_NE(base, uniform01(1, RandomStream::kInit, 3, 3));
  EXPECT_NE(base, uniform01(1, RandomStream::kInit, 2, 4));
  EXPECT_EQ(base, uniform01(1, RandomStream::kInit, 2, 3));
}

TEST(Normal, HasTheMomentsOfTheStandardNormal) {
  // Standard errors of mean, variance, skewness and kurtosis of n draws: sqrt(1, 2, 6, 24 / n).
  constexpr int kDraws = 100'000;
  double moments[5] = {};
  for (int i = 0; i < kDraws; ++i) {
    const double x = normal(5, RandomStream::kDummyTeacher, 0, static_cast<uint64_t>(i));
    ASSERT_TRUE(std::isfinite(x));
    for (int k = 1; k <= 4; ++k) moments[k] += std::pow(x, k) / kDraws;
  }
  const double root_n = std::sqrt(kDraws);
  EXPECT_NEAR(moments[1], 0.0, 5 * 1.0 / root_n);
  EXPECT_NEAR(moments[2], 1.0, 5 * std::sqrt(2.0) / root_n);
  EXPECT_NEAR(moments[3], 0.0, 5 * std::sqrt(15.0) / root_n);
  EXPECT_NEAR(moments[4], 3.0, 5 * std::sqrt(96.0) / root_n);
}

TEST(Normal, NeighboursAreNotCorrelated) {
  constexpr int kDraws = 100'000;
  double product[3] = {};
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double x = normal(5, RandomStream::kInit, 1, i);
    for (uint64_t k = 0; k < 3; ++k) {
      product[k] += x * normal(5, RandomStream::kInit, 1, i + k + 1) / kDraws;
    }
  }
  for (const double p : product) EXPECT_NEAR(p, 0.0, 5 / std::sqrt(kDraws));
}

TEST(FillUniform, GivesTheSameValuesForAnyCutOfTheRange) {
  constexpr size_t kCount = 1003;
  std::vector<float> whole(kCount);
  fill_uniform(8, RandomStream::kInit, 4, 5, 0.3F, kCount, whole.data());
  for (const size_t cut : {1, 2, 3, 4, 5, 7, 64, 1000}) {
    std::vector<float> parts(kCount);
    for (size_t first = 0; first < kCount; first += cut) {
      fill_uniform(8, RandomStream::kInit, 4, 5 + first, 0.3F, std::min(cut, kCount - first),
                   parts.data() + first);
    }
    EXPECT_EQ(parts, whole) << cut;
  }
}

TEST(FillUniform, ScalesUniform01ToTheBound) {
  std::vector<float> values(1000);
  fill_uniform(8, RandomStream::kInit, 4, 0, 0.5F, values.size(), values.data());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(values[i], uniform01(8, RandomStream::kInit, 4, i) - 0.5F) << i;
  }
  EXPECT_LT(*std::min_element(values.begin(), values.end()), -0.49F);
  EXPECT_GT(*std::max_element(values.begin(), values.end()), 0.49F);
}

TEST(FillUniform, WorksBeyondTheFirstFourBillionElements) {
  constexpr uint64_t kFirst = (uint64_t{1} << 34) - 2;  // the counter's high word changes at 2^34
  float values[4];
  fill_uniform(8, RandomStream::kInit, 4, kFirst, 1.0F, 4, values);
  for (uint64_t k = 0; k < 4; ++k) {
    EXPECT_EQ(values[k], 2.0F * uniform01(8, RandomStream::kInit, 4, kFirst + k) - 1.0F);
  }
  EXPECT_NE(values[2], 2.0F * uniform01(8, RandomStream::kInit, 4, 0) - 1.0F);
}

TEST(FillNormal, GivesNormalTimesTheDeviationForAnyCutOfTheRange) {
  constexpr size_t kCount = 1003;
  constexpr uint64_t kFirst = 5;
  std::vector<float> expected(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    expected[i] = 0.02F * normal(8, RandomStream::kInit, 4, kFirst + i);
  }
  for (const size_t cut : {1, 2, 3, 4, 5, 7, 64, 1000, 1003}) {
    std::vector<float> parts(kCount);
    for (size_t first = 0; first < kCount; first += cut) {
      fill_normal(8, RandomStream::kInit, 4, kFirst + first, 0.02F, std::min(cut, kCount - first),
                  parts.data() + first);
    }
    EXPECT_EQ(parts, expected) << cut;
  }
}

// Fixes the numbers: a change would silently draw other initial weights and other dummy data.
TEST(FillNormal, NeverChangesBetweenReleases) {
  float values[4];
  fill_normal(1, RandomStream::kInit, 2, 0, 1.0F, 4, values);
  EXPECT_THAT(values, ElementsAre(-1.27088523F, -0.229129627F, -0.461792469F, -2.2053647F));
}

TEST(Permutation, HoldsEachIndexOnce) {
  for (const int64_t n : {0, 1, 2, 3, 10, 1000, 60'000}) {
    std::vector<int64_t> order = permutation(1, 0, n);
    std::sort(order.begin(), order.end());
    std::vector<int64_t> expected(static_cast<size_t>(n));
    std::iota(expected.begin(), expected.end(), int64_t{0});
    EXPECT_EQ(order, expected) << n;
  }
}

TEST(Permutation, DependsOnEpochAndSeedOnly) {
  const std::vector<int64_t> order = permutation(1, 0, 100);
  EXPECT_EQ(order, permutation(1, 0, 100));
  EXPECT_NE(order, permutation(1, 1, 100));
  EXPECT_NE(order, permutation(2, 0, 100));
}

TEST(Permutation, ReachesEachOrderEquallyOften) {
  // 24 orders of 4, 1,000 expected each, standard deviation 31.
  std::vector<int> seen(256);
  for (uint32_t epoch = 0; epoch < 24'000; ++epoch) {
    const std::vector<int64_t> p = permutation(77, epoch, 4);
    ++seen[static_cast<size_t>(p[0] + 4 * p[1] + 16 * p[2] + 64 * p[3])];
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 0), 256 - 24);
  for (const int count : seen) {
    if (count > 0) {
      EXPECT_NEAR(count, 1000, 5 * 31);
    }
  }
}

// Fixes the numbers: a change would silently break replay and resume of older runs.
TEST(Permutation, NeverChangesBetweenReleases) {
  EXPECT_THAT(permutation(1, 0, 8), ElementsAre(1, 2, 6, 3, 4, 0, 5, 7));
}

TEST(Permutation, RefusesANegativeSize) { EXPECT_THROW(permutation(1, 0, -1), Error); }

// A replay needs these keys: they may change only with a new version of checkpoints.
TEST(RandomKey, KeepsItsKnownValues) {
  EXPECT_EQ(random_key(0, 0, 0, 0), 0x5038b712e1153797ULL);
  EXPECT_EQ(random_key(1, 2, 3, 4), 0xe35ec69688a2165fULL);
  EXPECT_EQ(random_key(0xffffffffffffffff, int64_t{1} << 40, 127, 11), 0x48891958a414cd31ULL);
}

TEST(RandomKey, DiffersBySeedStepMicroBatchAndPlace) {
  std::set<uint64_t> keys;
  constexpr int kEach = 8;
  for (int seed = 0; seed < kEach; ++seed) {
    for (int step = 0; step < kEach; ++step) {
      for (int micro_batch = 0; micro_batch < kEach; ++micro_batch) {
        for (uint32_t place = 0; place < kEach; ++place) {
          keys.insert(random_key(static_cast<uint64_t>(seed), step, micro_batch, place));
        }
      }
    }
  }
  EXPECT_EQ(keys.size(), size_t{kEach * kEach * kEach * kEach});
}

TEST(DropoutWords, KeepTheirKnownValues) {
  EXPECT_THAT(dropout_words(0, 0), ElementsAre(0x2a497e61, 0xe5a5ea88, 0xf4aedfa8, 0x6369fbf5));
  EXPECT_THAT(dropout_words(0x0123456789abcdef, (uint64_t{1} << 32) + 7),
              ElementsAre(0xe83bec06, 0x9cffe34a, 0x1568a225, 0x68209f58));
}

// The starts include counters that carry into the upper word.
TEST(DropoutWords, AreFilledAsTheyAreDefined) {
  for (const uint64_t first : {uint64_t{0}, uint64_t{3}, (uint64_t{1} << 32) - 5}) {
    for (const size_t blocks : {0, 1, 7, 8, 15, 16, 33, 100}) {
      std::vector<uint32_t> words(4 * blocks + 1, 17);
      fill_dropout_words(0xfedcba9876543210, first, static_cast<int64_t>(blocks), words.data());
      for (size_t i = 0; i < 4 * blocks; ++i) {
        ASSERT_EQ(words[i], dropout_words(0xfedcba9876543210, first + i / 4)[i % 4])
            << first << ", " << blocks << ", " << i;
      }
      EXPECT_EQ(words.back(), 17) << "is behind the last block";
    }
  }
}

// A share of n words is p with a standard deviation of sqrt(p (1 - p) / n); five of them are a
// one-in-a-million accident, and the key is fixed.
TEST(DropoutWords, AreBelowPWithProbabilityP) {
  constexpr int64_t kBlocks = 25'000;
  std::vector<uint32_t> words(4 * kBlocks);
  fill_dropout_words(random_key(1, 2, 3, 4), 0, kBlocks, words.data());
  const auto count = static_cast<double>(words.size());
  for (const double p : {0.001, 0.1, 0.5, 0.9}) {
    const auto below = static_cast<double>(
        std::ranges::count_if(words, [p](uint32_t word) { return word < p * 0x1p32; }));
    EXPECT_NEAR(below / count, p, 5 * std::sqrt(p * (1 - p) / count));
  }
}

}  // namespace
}  // namespace pushpull

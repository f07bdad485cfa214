#include "ps/server/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "common/base/error.h"

namespace pushpull {
namespace {

TEST(Ledger, FloorIsTheFirstIncompleteStep) {
  Ledger ledger(5, 4);
  EXPECT_EQ(ledger.floor(), 5);
  ledger.add(5, {0, 2});
  EXPECT_EQ(ledger.floor(), 5);
  ledger.add(6, {0, 4});
  EXPECT_EQ(ledger.floor(), 5) << "step 6 is complete, step 5 is not";
  ledger.add(5, {2, 4});
  EXPECT_EQ(ledger.floor(), 7);
}

TEST(Ledger, ContainsAnyPartOfAnAddedRange) {
  Ledger ledger(0, 8);
  ledger.add(1, {2, 5});
  EXPECT_TRUE(ledger.contains(1, {2, 5}));
  EXPECT_TRUE(ledger.contains(1, {0, 3}));
  EXPECT_TRUE(ledger.contains(1, {4, 8}));
  EXPECT_TRUE(ledger.contains(1, {3, 4}));
  EXPECT_TRUE(ledger.contains(1, {0, 8}));
  EXPECT_FALSE(ledger.contains(1, {0, 2}));
  EXPECT_FALSE(ledger.contains(1, {5, 8}));
  EXPECT_FALSE(ledger.contains(0, {2, 5}));
}

TEST(Ledger, ContainsAllBelowTheFloor) {
  const Ledger resumed(17, 4);
  EXPECT_TRUE(resumed.contains(16, {0, 1}));
  EXPECT_TRUE(resumed.contains(-5, {0, 4}));
  EXPECT_FALSE(resumed.contains(17, {0, 1}));
}

TEST(Ledger, AddingARangeTwiceIsAnAssertion) {
  Ledger ledger(0, 4);
  ledger.add(0, {0, 2});
  EXPECT_THROW(ledger.add(0, {1, 3}), Error);
  EXPECT_THROW(ledger.add(0, {3, 5}), Error);
  EXPECT_THROW(ledger.add(0, {2, 2}), Error);
  EXPECT_THROW(ledger.add(-1, {0, 1}), Error);
  ledger.add(0, {2, 4});
  EXPECT_EQ(ledger.floor(), 1);
}

TEST(Ledger, AnyOrderGivesTheSameFloor) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::pair<int64_t, Range>> all;
    for (int64_t step = 0; step < 6; ++step) {
      for (int share = 0; share < 3; ++share) all.emplace_back(step, share_range(share, 3, 8));
    }
    std::shuffle(all.begin(), all.end(), random);
    Ledger ledger(0, 8);
    for (const auto& [step, range] : all) ledger.add(step, range);
    EXPECT_EQ(ledger.floor(), 6);
  }
}

}  // namespace
}  // namespace pushpull

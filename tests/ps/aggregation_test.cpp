#include "ps/aggregation/aggregation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "common/base/error.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {
namespace {

TEST(Ledger, TheFloorIsTheFirstStepThatIsNotWhollyIn) {
  Ledger ledger(5, 4);
  EXPECT_EQ(ledger.floor(), 5);
  ledger.add(5, {0, 2});
  EXPECT_EQ(ledger.floor(), 5);
  ledger.add(6, {0, 4});
  EXPECT_EQ(ledger.floor(), 5) << "step 6 is whole, step 5 is not";
  ledger.add(5, {2, 4});
  EXPECT_EQ(ledger.floor(), 7);
}

TEST(Ledger, WhatIsInIsKnownHoweverTheRangeIsCut) {
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

TEST(Ledger, EverythingBelowTheFloorIsIn) {
  const Ledger resumed(17, 4);
  EXPECT_TRUE(resumed.contains(16, {0, 1}));
  EXPECT_TRUE(resumed.contains(-5, {0, 4}));
  EXPECT_FALSE(resumed.contains(17, {0, 1}));
}

TEST(Ledger, TakingARangeInTwiceIsOurMistake) {
  Ledger ledger(0, 4);
  ledger.add(0, {0, 2});
  EXPECT_THROW(ledger.add(0, {1, 3}), Error);
  EXPECT_THROW(ledger.add(0, {3, 5}), Error);
  EXPECT_THROW(ledger.add(0, {2, 2}), Error);
  EXPECT_THROW(ledger.add(-1, {0, 1}), Error);
  ledger.add(0, {2, 4});
  EXPECT_EQ(ledger.floor(), 1);
}

TEST(Ledger, AnyOrderEndsAtTheSameFloor) {
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

TEST(PushTracker, AcknowledgesOnlyWhatIsCompleteWithoutGap) {
  PushTracker pushes;
  EXPECT_EQ(pushes.through(), 0);
  EXPECT_FALSE(pushes.complete(1));
  pushes.mark(2);
  EXPECT_TRUE(pushes.complete(2));
  EXPECT_EQ(pushes.through(), 0);
  pushes.mark(1);
  EXPECT_EQ(pushes.through(), 2);
  pushes.mark(4);
  pushes.mark(5);
  pushes.mark(4);
  EXPECT_EQ(pushes.through(), 2);
  pushes.mark(3);
  EXPECT_EQ(pushes.through(), 5);
  EXPECT_TRUE(pushes.complete(5));
  EXPECT_FALSE(pushes.complete(6));
}

PartialSum part(int64_t lo, int64_t hi, float value = 1.0F) {
  return {{lo, hi}, constant_payload(1, value)};
}

TEST(SyncSums, ASliceIsCompleteWhenItsPartsCoverTheStep) {
  SyncSums sums({3, 7}, 4);
  EXPECT_FALSE(sums.add(3, part(2, 4)));
  EXPECT_FALSE(sums.complete(3));
  EXPECT_TRUE(sums.add(3, part(0, 2)));
  EXPECT_TRUE(sums.complete(3));
  EXPECT_FALSE(sums.all_complete());
  EXPECT_TRUE(sums.add(7, part(0, 4)));
  EXPECT_TRUE(sums.all_complete());
}

TEST(SyncSums, KeepsPartsInOrderOfTheirMicroBatches) {
  SyncSums sums({0}, 4);
  for (const int64_t lo : {2, 0, 3, 1}) sums.add(0, part(lo, lo + 1));
  ASSERT_EQ(sums.parts(0).size(), 4U);
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(sums.parts(0)[static_cast<size_t>(i)].range, (Range{i, i + 1}));
  }
}

TEST(SyncSums, DropsDuplicatesAndOverlapsAndKeepsTheFirst) {
  SyncSums sums({0}, 8);
  sums.add(0, part(0, 4, 1.0F));
  EXPECT_FALSE(sums.add(0, part(0, 4, 2.0F)));
  EXPECT_FALSE(sums.add(0, part(2, 4, 2.0F)));
  EXPECT_FALSE(sums.add(0, part(0, 8, 2.0F)));
  ASSERT_EQ(sums.parts(0).size(), 1U);
  EXPECT_EQ(sums.parts(0)[0].payload.floats()[0], 1.0F);
  EXPECT_TRUE(sums.add(0, part(4, 8)));
  EXPECT_FALSE(sums.add(0, part(4, 8))) << "it becomes complete once";
  EXPECT_TRUE(sums.complete(0));
}

TEST(SyncSums, ASliceThatIsDoneWaitsForTheNextStep) {
  SyncSums sums({0, 1}, 2);
  sums.add(0, part(0, 2));
  sums.add(1, part(0, 2));
  ASSERT_TRUE(sums.all_complete());
  sums.clear(0);
  EXPECT_FALSE(sums.all_complete());
  EXPECT_FALSE(sums.complete(0));
  EXPECT_TRUE(sums.parts(0).empty());
  EXPECT_TRUE(sums.add(0, part(0, 2)));
  EXPECT_TRUE(sums.all_complete());
  sums.clear(1);
  sums.clear(1);  // nothing is in it: nothing changes
  sums.clear(0);
  EXPECT_TRUE(sums.add(0, part(0, 2)));
  EXPECT_FALSE(sums.all_complete());
}

TEST(NeededFloor, IsTheClockInSync) {
  const Barriers none{0, 0, 0, 100};
  EXPECT_EQ(needed_floor(Strategy::parse("sync"), none, 7), 7);
  EXPECT_EQ(needed_floor(Strategy::parse("ssp:0"), none, 7), 7);
}

TEST(NeededFloor, IsTheClockLessTheStalenessInSsp) {
  const Barriers none{0, 0, 0, 100};
  EXPECT_EQ(needed_floor(Strategy::parse("ssp:3"), none, 7), 4);
  EXPECT_EQ(needed_floor(Strategy::parse("ssp:3"), none, 2), 0) << "never below the start";
  EXPECT_EQ(needed_floor(Strategy::parse("ssp:1000000"), none, 50), 0);
}

TEST(NeededFloor, IsTheLastBarrierInAsync) {
  const Barriers every_ten{10, 0, 0, 100};
  const Strategy async = Strategy::parse("async");
  EXPECT_EQ(needed_floor(async, every_ten, 9), 0);
  EXPECT_EQ(needed_floor(async, every_ten, 10), 10);
  EXPECT_EQ(needed_floor(async, every_ten, 29), 20);
  EXPECT_EQ(needed_floor(Strategy::parse("ssp:5"), every_ten, 22), 20);
  EXPECT_EQ(needed_floor(Strategy::parse("ssp:5"), every_ten, 29), 24);
}

}  // namespace
}  // namespace pushpull

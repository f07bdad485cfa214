#include <gtest/gtest.h>

#include "ps/server/whole_steps.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {
namespace {

PartialSum part(int64_t lo, int64_t hi, float value = 1.0F) {
  return {{lo, hi}, constant_payload(1, value)};
}

TEST(StepSums, SliceIsCompleteWhenItsPartsCoverTheStep) {
  StepSums sums({3, 7}, 4);
  EXPECT_FALSE(sums.add(3, part(2, 4)));
  EXPECT_FALSE(sums.complete(3));
  EXPECT_TRUE(sums.add(3, part(0, 2)));
  EXPECT_TRUE(sums.complete(3));
  EXPECT_FALSE(sums.all_complete());
  EXPECT_TRUE(sums.add(7, part(0, 4)));
  EXPECT_TRUE(sums.all_complete());
}

TEST(StepSums, KeepsPartsInOrderOfTheirMicroBatches) {
  StepSums sums({0}, 4);
  for (const int64_t lo : {2, 0, 3, 1}) sums.add(0, part(lo, lo + 1));
  ASSERT_EQ(sums.parts(0).size(), 4U);
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(sums.parts(0)[static_cast<size_t>(i)].range, (Range{i, i + 1}));
  }
}

TEST(StepSums, DropsDuplicatesAndOverlapsAndKeepsTheFirst) {
  StepSums sums({0}, 8);
  sums.add(0, part(0, 4, 1.0F));
  EXPECT_FALSE(sums.add(0, part(0, 4, 2.0F)));
  EXPECT_FALSE(sums.add(0, part(2, 4, 2.0F)));
  EXPECT_FALSE(sums.add(0, part(0, 8, 2.0F)));
  ASSERT_EQ(sums.parts(0).size(), 1U);
  EXPECT_EQ(sums.parts(0)[0].payload.floats()[0], 1.0F);
  EXPECT_TRUE(sums.add(0, part(4, 8)));
  EXPECT_FALSE(sums.add(0, part(4, 8))) << "a slice becomes complete once";
  EXPECT_TRUE(sums.complete(0));
}

TEST(StepSums, CompletedSliceWaitsForTheNextStep) {
  StepSums sums({0, 1}, 2);
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
  sums.clear(1);  // the slice is empty: no change
  sums.clear(0);
  EXPECT_TRUE(sums.add(0, part(0, 2)));
  EXPECT_FALSE(sums.all_complete());
}

}  // namespace
}  // namespace pushpull

#include <gtest/gtest.h>

#include "common/layout/slice_map.h"
#include "worker/all_reduce/all_reduce_step.h"

namespace pushpull {
namespace {

constexpr int64_t kSliceBytes = 4096;  // 1,024 elements

TEST(Buckets, CoverTheVectorFromItsEndWithASmallFirstBucket) {
  const SliceMap map(10 * 1024 + 5, kSliceBytes, 1);
  const Buckets buckets(map, 0, kSliceBytes, 4 * kSliceBytes);
  ASSERT_EQ(buckets.count(), 4);
  EXPECT_EQ(buckets.elements(0), (Range{10 * 1024, 10 * 1024 + 5}));
  EXPECT_EQ(buckets.elements(1), (Range{6 * 1024, 10 * 1024}));
  EXPECT_EQ(buckets.elements(2), (Range{2 * 1024, 6 * 1024}));
  EXPECT_EQ(buckets.elements(3), (Range{0, 2 * 1024}));
}

TEST(Buckets, SliceLargerThanABucketIsABucket) {
  const SliceMap map(4 * 1024, 2 * kSliceBytes, 1);
  const Buckets buckets(map, 0, 100, 100);
  ASSERT_EQ(buckets.count(), 2);
  EXPECT_EQ(buckets.elements(0), (Range{2048, 4096}));
}

TEST(Buckets, KeepTheirOrderWhenSlicesBecomeReadyInAnotherOne) {
  const SliceMap map(4 * 1024, kSliceBytes, 1);
  Buckets buckets(map, 0, kSliceBytes, kSliceBytes);
  ASSERT_EQ(buckets.count(), 4);
  for (int step = 0; step < 2; ++step) {
    buckets.begin();
    buckets.mark(1);
    EXPECT_EQ(buckets.next(), std::nullopt);
    buckets.mark(3);
    EXPECT_EQ(buckets.next(), 0);
    EXPECT_EQ(buckets.next(), std::nullopt);
    buckets.mark(2);
    EXPECT_EQ(buckets.next(), 1);
    EXPECT_EQ(buckets.next(), 2);
    EXPECT_EQ(buckets.next(), std::nullopt);
    buckets.mark(0);
    EXPECT_EQ(buckets.next(), 3);
    EXPECT_EQ(buckets.next(), std::nullopt);
  }
}

TEST(Buckets, OfAStageCoverItsSlices) {
  const SliceMap map(12 * 1024, kSliceBytes, 1, {3 * 1024 + 5, 9 * 1024 + 1});  // whole blocks
  Buckets buckets(map, 1, kSliceBytes, 4 * kSliceBytes);
  ASSERT_EQ(buckets.count(), 3);
  EXPECT_EQ(buckets.elements(0), (Range{9 * 1024, 10 * 1024}));
  EXPECT_EQ(buckets.elements(1), (Range{5 * 1024, 9 * 1024}));
  EXPECT_EQ(buckets.elements(2), (Range{4 * 1024, 5 * 1024}));
  buckets.mark(9);
  EXPECT_EQ(buckets.next(), 0);
  for (int slice = 5; slice < 9; ++slice) {
    EXPECT_EQ(buckets.next(), std::nullopt);
    buckets.mark(slice);
  }
  EXPECT_EQ(buckets.next(), 1);
  buckets.mark(4);
  EXPECT_EQ(buckets.next(), 2);
}

TEST(Buckets, OfAStageWithoutElementsAreNone) {
  const SliceMap map(2 * 1024, kSliceBytes, 1, {2 * 1024 - 5});
  ASSERT_EQ(map.slices_of_stage(1).size(), 0);
  Buckets buckets(map, 1, kSliceBytes, kSliceBytes);
  EXPECT_EQ(buckets.count(), 0);
  EXPECT_EQ(buckets.next(), std::nullopt);
}

}  // namespace
}  // namespace pushpull

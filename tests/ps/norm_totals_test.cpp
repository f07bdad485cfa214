#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/layout/slice_map.h"
#include "common/update/norm.h"
#include "ps/run/training_run.h"

namespace pushpull {
namespace {

// Three slices on two servers.
const SliceMap kMap(3000, 4096, 2);

// Returns `square` for each slice of the server, with incarnation 100 + rank.
wire::Norms norms_of(int rank, int64_t step, double square = 3.0) {
  wire::Norms norms;
  norms.set_incarnation(100 + static_cast<uint64_t>(rank));
  norms.set_step(step);
  for (const int slice : kMap.slices_of(rank)) {
    for (const NormPart& part : norm_parts({&square, 1}, kMap.blocks(slice).lo, kMap.blocks())) {
      wire::NormNode* node = norms.add_nodes();
      node->set_lo(part.blocks.lo);
      node->set_hi(part.blocks.hi);
      node->set_squares(part.squares);
    }
  }
  return norms;
}

TEST(NormTotals, TotalIsSentToAllOnceAndThenToServersThatRepeat) {
  NormTotals totals(kMap);
  EXPECT_FALSE(totals.take(norms_of(0, 0)));
  EXPECT_FALSE(totals.take(norms_of(0, 0))) << "a repeat: still one of two servers";
  EXPECT_TRUE(totals.take(norms_of(1, 0)));
  EXPECT_TRUE(totals.all_here_now());
  ASSERT_TRUE(totals.total());
  EXPECT_EQ(totals.total()->step(), 0);
  EXPECT_DOUBLE_EQ(totals.total()->norm(), 3.0);
  EXPECT_TRUE(totals.take(norms_of(0, 0)));
  EXPECT_FALSE(totals.all_here_now()) << "only this server needs the answer";
}

TEST(NormTotals, PartsOfDifferentStepsDoNotMix) {
  NormTotals totals(kMap);
  EXPECT_FALSE(totals.take(norms_of(0, 0, 100.0)));
  EXPECT_FALSE(totals.take(norms_of(1, 1)));
  EXPECT_FALSE(totals.take(norms_of(0, 0, 100.0))) << "step 0 is already complete";
  EXPECT_TRUE(totals.take(norms_of(0, 1)));
  EXPECT_DOUBLE_EQ(totals.total()->norm(), 3.0);
}

TEST(NormTotals, ServersWithoutSlicesAreNotWaitedFor) {
  const SliceMap one_slice(10, 4096, 3);
  NormTotals totals(one_slice);
  EXPECT_EQ(totals.servers(), 1);
  wire::Norms norms;
  norms.set_incarnation(100);
  wire::NormNode* node = norms.add_nodes();
  node->set_lo(0);
  node->set_hi(one_slice.blocks());
  node->set_squares(4.0);
  EXPECT_TRUE(totals.take(norms));
  EXPECT_DOUBLE_EQ(totals.total()->norm(), 2.0);
}

TEST(NormTotals, EarlierTotalsAreKeptForAServerThatRepeatsSteps) {
  NormTotals totals(kMap, 2);
  for (int64_t step = 0; step < 4; ++step) {
    totals.take(norms_of(0, step, 3.0 + static_cast<double>(step)));
    totals.take(norms_of(1, step, 3.0 + static_cast<double>(step)));
  }
  EXPECT_FALSE(totals.take(norms_of(1, 0))) << "the total of step 0 is no longer kept";
  for (const int64_t step : {1, 2, 3}) {
    ASSERT_TRUE(totals.take(norms_of(1, step, 1.0))) << step;
    EXPECT_FALSE(totals.all_here_now());
    EXPECT_EQ(totals.total()->step(), step);
    EXPECT_DOUBLE_EQ(totals.total()->norm(), std::sqrt(3.0 * (3.0 + static_cast<double>(step))));
  }
}

TEST(NormTotals, PartsOfALostServerDoNotCount) {
  NormTotals totals(kMap);
  EXPECT_FALSE(totals.take(norms_of(1, 0, 100.0)));
  totals.forget(101);
  wire::Norms other = norms_of(1, 0);
  other.set_incarnation(201);
  EXPECT_FALSE(totals.take(other));
  EXPECT_TRUE(totals.take(norms_of(0, 0)));
  EXPECT_DOUBLE_EQ(totals.total()->norm(), 3.0);
}

}  // namespace
}  // namespace pushpull

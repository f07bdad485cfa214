#include "ps/coordinator/barrier_snapshots.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

// Evaluations every 2 steps, checkpoints every 4, steps 0 to 10.
const Barriers kBarriers = {2, 4, 0, 10, 1};

TEST(BarrierSnapshots, InitialWeightsAreTheFirstSnapshot) {
  const Barriers barriers{0, 4, 6, 10, 1};
  BarrierSnapshots snapshots(barriers);
  EXPECT_EQ(snapshots.gathered_barrier(), 5) << "servers keep the initial weights";
  EXPECT_EQ(snapshots.take_request(), 6);
  EXPECT_FALSE(snapshots.take_request());
}

TEST(BarrierSnapshots, ServerZeroOpensTheOnlyBarrierOfARunAtItsEnd) {
  const Barriers barriers{0, 4, 10, 10, 1};
  BarrierSnapshots snapshots(barriers);
  EXPECT_FALSE(snapshots.take_request());
  EXPECT_TRUE(snapshots.open(10, 80));
  EXPECT_EQ(snapshots.take_opened(), (std::vector<OpenedBarrier>{{10, 80}}));
  EXPECT_EQ(snapshots.take_request(), 10);
  EXPECT_FALSE(snapshots.take_request()) << "once";
  EXPECT_FALSE(snapshots.complete());
  snapshots.written(10);
  EXPECT_TRUE(snapshots.complete());
}

TEST(BarrierSnapshots, OnlyCheckpointsAreGathered) {
  BarrierSnapshots snapshots(kBarriers);
  snapshots.take_request();
  for (const int64_t step : {2, 4, 6, 8, 10}) snapshots.open(step, step * 8);
  EXPECT_EQ(snapshots.take_request(), 4);
  EXPECT_EQ(snapshots.take_request(), 8);
  EXPECT_EQ(snapshots.take_request(), 10);
  EXPECT_FALSE(snapshots.take_request());
}

TEST(BarrierSnapshots, EachOpenedBarrierIsReportedOnce) {
  BarrierSnapshots snapshots(kBarriers);
  snapshots.open(2, 16);
  snapshots.open(4, 32);
  EXPECT_EQ(snapshots.take_opened(), (std::vector<OpenedBarrier>{{2, 16}, {4, 32}}));
  EXPECT_TRUE(snapshots.take_opened().empty());
}

TEST(BarrierSnapshots, BarrierThatBecomesACheckpointIsGatheredOnce) {
  Barriers barriers = kBarriers;
  BarrierSnapshots snapshots(barriers);
  snapshots.take_request();
  EXPECT_TRUE(snapshots.open(2, 16));
  EXPECT_FALSE(snapshots.take_request());
  barriers.choose(2);
  EXPECT_FALSE(snapshots.open(2, 16));
  EXPECT_FALSE(snapshots.open(2, 16));
  EXPECT_EQ(snapshots.take_request(), 2);
  EXPECT_FALSE(snapshots.take_request());
  EXPECT_EQ(snapshots.take_opened(), (std::vector<OpenedBarrier>{{2, 16}}));
}

TEST(BarrierSnapshots, ServersReleaseGatheredSnapshotsAndTheEndIsTheWrittenOne) {
  BarrierSnapshots snapshots(kBarriers);
  snapshots.gathered(10);
  EXPECT_EQ(snapshots.gathered_barrier(), 10);
  EXPECT_FALSE(snapshots.complete()) << "the snapshot is not on disk";
  snapshots.written(4);
  EXPECT_EQ(snapshots.gathered_barrier(), 10) << "a late result does not go back";
  EXPECT_FALSE(snapshots.complete());
  snapshots.written(10);
  EXPECT_TRUE(snapshots.complete());
}

TEST(BarrierSnapshots, GatheredSnapshotIsWritingUntilItIsOnDisk) {
  BarrierSnapshots snapshots(kBarriers);
  snapshots.take_request();
  EXPECT_FALSE(snapshots.writing()) << "still gathering";
  snapshots.gathered(0);
  EXPECT_TRUE(snapshots.writing());
  snapshots.written(0);
  EXPECT_FALSE(snapshots.writing());
}

TEST(BarrierSnapshots, WaitIsReportedOnce) {
  BarrierSnapshots snapshots(kBarriers);
  EXPECT_TRUE(snapshots.waits());
  EXPECT_FALSE(snapshots.waits());
}

}  // namespace
}  // namespace pushpull

#include "ps/run/barrier_snapshots.h"

#include <gtest/gtest.h>

#include <optional>

namespace pushpull {
namespace {

using Extent = BarrierSnapshots::Extent;
using Request = BarrierSnapshots::Request;
using Task = BarrierSnapshots::Task;

// The test plays server 0, the transfers and the disk. Evaluations every 2 steps, checkpoints every
// 4, steps 0 to 10.
class SnapshotsTest : public testing::Test {
 protected:
  void begin(const Barriers& barriers = {2, 4, 0, 10, 1}) {
    barriers_ = barriers;
    snapshots_.emplace(barriers_);
  }
  // Begins with the start hashed.
  void train(const Barriers& barriers = {2, 4, 0, 10, 1}) {
    begin(barriers);
    finish(0);
  }
  void gather(int64_t step) { snapshots_->gathered({.step = step, .updates = 7}); }
  // The next snapshot, of this step, goes its whole way.
  void finish(int64_t step) {
    EXPECT_EQ(snapshots_->take_request().value_or(Request{-1}).step, step);
    gather(step);
    EXPECT_TRUE(snapshots_->take_task(false));
    EXPECT_TRUE(snapshots_->written(true));
  }
  // Takes a task of the disk. Returns its kind.
  std::optional<CheckpointKind> kind(bool is_best = false) {
    const std::optional<Task> task = snapshots_->take_task(is_best);
    EXPECT_TRUE(task);
    return task ? task->kind : std::nullopt;
  }

  Barriers barriers_;
  std::optional<BarrierSnapshots> snapshots_;
};

TEST_F(SnapshotsTest, InitialWeightsAreTheFirstOneAndOnlyHashed) {
  begin({0, 4, 6, 10, 1});
  EXPECT_EQ(snapshots_->gathered_barrier(), 5) << "servers keep the initial weights";
  EXPECT_EQ(snapshots_->take_request(), (Request{6, Extent::kWeights}));
  EXPECT_FALSE(snapshots_->take_request());
  gather(6);
  EXPECT_FALSE(kind(true)) << "even if the evaluation there was the best one";
  EXPECT_TRUE(snapshots_->written(true));
  EXPECT_FALSE(snapshots_->saved_step()) << "it is not on disk";
  EXPECT_FALSE(snapshots_->complete());
}

TEST_F(SnapshotsTest, ServerZeroOpensTheOnlyBarrierOfARunAtItsEnd) {
  begin({0, 4, 10, 10, 1});
  EXPECT_FALSE(snapshots_->take_request());
  EXPECT_TRUE(snapshots_->open(10));
  EXPECT_FALSE(snapshots_->complete());
  finish(10);
  EXPECT_FALSE(snapshots_->take_request()) << "once";
  EXPECT_TRUE(snapshots_->complete());
}

TEST_F(SnapshotsTest, OnlyCheckpointsAreGathered) {
  train();
  for (const int64_t step : {2, 4, 6, 8, 10}) snapshots_->open(step);
  for (const int64_t step : {4, 8, 10}) finish(step);
  EXPECT_FALSE(snapshots_->take_request());
}

TEST_F(SnapshotsTest, BarrierThatBecomesACheckpointIsGatheredOnce) {
  train();
  EXPECT_TRUE(snapshots_->open(2));
  EXPECT_FALSE(snapshots_->take_request());
  barriers_.choose(2);
  EXPECT_FALSE(snapshots_->open(2));
  EXPECT_FALSE(snapshots_->open(2));
  EXPECT_EQ(snapshots_->take_request(), (Request{2, Extent::kWhole}));
  EXPECT_FALSE(snapshots_->take_request());
}

TEST_F(SnapshotsTest, CheckpointIsRequestedGatheredAndWritten) {
  train();
  snapshots_->open(4);
  EXPECT_FALSE(snapshots_->busy()) << "it waits its turn";
  snapshots_->take_request();
  EXPECT_TRUE(snapshots_->busy());
  EXPECT_EQ(snapshots_->gathered_barrier(), 0);
  EXPECT_FALSE(snapshots_->waiting_step());
  gather(4);
  EXPECT_EQ(snapshots_->gathered_barrier(), 4) << "servers may free it";
  EXPECT_EQ(snapshots_->waiting_step(), 4);
  EXPECT_FALSE(snapshots_->disk_step());
  const std::optional<Task> task = snapshots_->take_task(false);
  ASSERT_TRUE(task);
  EXPECT_EQ(task->kind, CheckpointKind::kRolling);
  EXPECT_EQ(task->snapshot.updates, 7);
  EXPECT_EQ(snapshots_->disk_step(), 4);
  EXPECT_FALSE(snapshots_->take_task(false)) << "once";
  EXPECT_FALSE(snapshots_->saved_step());
  EXPECT_TRUE(snapshots_->written(true));
  EXPECT_EQ(snapshots_->saved_step(), 4);
  EXPECT_FALSE(snapshots_->disk_step());
  EXPECT_FALSE(snapshots_->busy());
}

TEST_F(SnapshotsTest, LostCheckpointIsOverButNotSaved) {
  train();
  snapshots_->open(10);
  snapshots_->take_request();
  gather(10);
  EXPECT_EQ(kind(), CheckpointKind::kLast);
  EXPECT_TRUE(snapshots_->written(false));
  EXPECT_FALSE(snapshots_->saved_step());
  EXPECT_TRUE(snapshots_->complete()) << "it was given up";
}

TEST_F(SnapshotsTest, NextCheckpointWaitsUntilTheDiskIsDoneAndACopyDoesNot) {
  Barriers barriers{0, 4, 0, 20, 1};
  barriers.copy_every = 3;
  train(barriers);
  for (const int64_t step : {4, 6, 8}) snapshots_->open(step);
  snapshots_->take_request();
  gather(4);
  EXPECT_EQ(kind(), CheckpointKind::kRolling);
  EXPECT_EQ(snapshots_->take_request(), (Request{6, Extent::kCopy}));
  gather(6);
  EXPECT_EQ(snapshots_->gathered_barrier(), 6);
  EXPECT_FALSE(snapshots_->waiting_step()) << "its life is over";
  EXPECT_FALSE(snapshots_->take_request()) << "step 4 is at the disk";
  snapshots_->written(true);
  EXPECT_EQ(snapshots_->gathered_barrier(), 6) << "a late result does not go back";
  EXPECT_EQ(snapshots_->take_request(), (Request{8, Extent::kWhole}));
}

TEST_F(SnapshotsTest, BestOneIsWrittenTwiceIfACheckpointIsDueThere) {
  Barriers barriers{4, 4, 0, 10, 1};
  barriers.awaits_evaluations = true;
  train(barriers);
  snapshots_->open(4);
  snapshots_->take_request();
  gather(4);
  EXPECT_EQ(kind(true), CheckpointKind::kBest);
  EXPECT_EQ(snapshots_->disk_step(), 4);
  EXPECT_FALSE(snapshots_->take_task(true));
  EXPECT_FALSE(snapshots_->written(true)) << "its life goes on";
  EXPECT_FALSE(snapshots_->saved_step());
  EXPECT_TRUE(snapshots_->busy());
  const std::optional<Task> task = snapshots_->take_task(true);
  ASSERT_TRUE(task);
  EXPECT_EQ(task->kind, CheckpointKind::kRolling);
  EXPECT_EQ(task->snapshot.updates, 7) << "the weights are still there";
  EXPECT_TRUE(snapshots_->written(true));
  EXPECT_EQ(snapshots_->saved_step(), 4);
}

TEST_F(SnapshotsTest, EvaluatedWeightsAreDroppedUnlessTheyAreTheBest) {
  Barriers barriers{2, 0, 0, 10, 1};
  barriers.awaits_evaluations = true;
  train(barriers);
  for (const int64_t step : {2, 4}) {
    const bool is_best = step == 2;
    snapshots_->open(step);
    EXPECT_EQ(snapshots_->take_request(), (Request{step, Extent::kWhole}));
    gather(step);
    EXPECT_EQ(snapshots_->take_task(is_best).has_value(), is_best);
    if (is_best) {
      EXPECT_FALSE(snapshots_->written(true));
      EXPECT_FALSE(snapshots_->take_task(true));
    }
    EXPECT_FALSE(snapshots_->busy());
  }
  EXPECT_FALSE(snapshots_->saved_step());
}

TEST_F(SnapshotsTest, EvaluationThatEndsTheRunMakesItsWeightsTheLastCheckpoint) {
  Barriers barriers{2, 0, 0, 10, 1};
  barriers.awaits_evaluations = true;
  train(barriers);
  snapshots_->open(2);
  snapshots_->take_request();
  gather(2);
  barriers_.end_step = 2;
  EXPECT_EQ(kind(), CheckpointKind::kLast);
  snapshots_->written(true);
  EXPECT_TRUE(snapshots_->complete());
}

TEST_F(SnapshotsTest, StopsOnceItsCheckpointIsWritten) {
  train();
  barriers_.stop_step = 6;
  snapshots_->open(6);
  EXPECT_FALSE(snapshots_->stopped());
  snapshots_->take_request();
  gather(6);
  EXPECT_EQ(kind(), CheckpointKind::kLast);
  snapshots_->written(true);
  EXPECT_TRUE(snapshots_->stopped());
  EXPECT_FALSE(snapshots_->complete());
}

}  // namespace
}  // namespace pushpull

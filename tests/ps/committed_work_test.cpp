#include "ps/members/committed_work.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/job/job.h"
#include "common/layout/metric.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {
namespace {

Commit commit(int64_t step, Range range, std::vector<float> losses, bool counted = true) {
  return {1, step, range, std::move(losses), counted};
}

Barriers from(int64_t step) {
  Barriers barriers;
  barriers.start_step = step;
  barriers.end_step = int64_t{1} << 40;
  barriers.checkpoint_every = 3;
  return barriers;
}

const Barriers kFromStart = from(0);
const Barriers kFromThree = from(3);

TEST(CommittedWork, CountsSamplesByRankAndOnce) {
  CommittedWork committed(job_of(), 2, kFromStart);
  committed.add(commit(0, {0, 2}, {1, 1}), 0);
  committed.add(commit(0, {2, 4}, {1, 1}), 1);
  committed.add(commit(0, {2, 4}, {1, 1}, false), 1);
  committed.add(commit(1, {0, 2}, {1, 1}), -1);  // from a worker that has left
  committed.add(commit(1, {2, 4}, {1, 1}), 3);   // from a worker that joined later
  EXPECT_EQ(committed.counts().samples, 16);
  EXPECT_EQ(committed.counts().samples_per_worker, (std::vector<int64_t>{4, 4, 0, 4}));
  EXPECT_EQ(committed.floor(), 2);
}

TEST(CommittedWork, CountsTheWorkOfEachProcess) {
  CommittedWork committed(job_of(), 2, kFromStart);
  committed.add(commit(0, {0, 2}, {1, 1}), 0);
  Commit again = commit(0, {0, 2}, {1, 1}, false);
  Commit dropped = commit(3, {0, 2}, {1, 1}, false);
  dropped.dropped = true;
  committed.add(again, 0);
  committed.add(dropped, 0);
  Commit other = commit(1, {2, 4}, {1, 1});
  other.incarnation = 2;
  other.staleness = 3;
  committed.add(other, 0);  // has the same rank, after the first process
  other.step = 2;
  other.staleness = 1;
  committed.add(other, -1);  // is no longer a member
  const PushedWork& first = committed.by_process().at(1);
  EXPECT_EQ(committed.samples_of(1), 4);
  EXPECT_EQ(first.pushes, 1);
  EXPECT_EQ(first.step, 1);
  EXPECT_EQ(first.clock, 4) << "the clock passes a dropped push";
  const PushedWork& second = committed.by_process().at(2);
  EXPECT_EQ(committed.samples_of(2), 8);
  EXPECT_EQ(second.step, 3);
  EXPECT_EQ(second.staleness_sum, 4);
  EXPECT_EQ(second.staleness_max, 3);
}

TEST(CommittedWork, EachWorkerOfAGroupHasItsSamplesAndTheRunHasThemOnce) {
  CommittedWork committed(job_of(), 2, kFromStart);
  Commit joined = commit(0, {0, 2}, {1, 1});
  joined.others = {5, 6};
  committed.add(joined, 2);
  joined.counted = false;
  committed.add(joined, 2);
  for (const uint64_t worker : {1, 5, 6}) {
    EXPECT_EQ(committed.samples_of(worker), 4) << worker;
    EXPECT_EQ(committed.by_process().at(worker).pushes, 1) << worker;
  }
  EXPECT_EQ(committed.counts().samples, 4);
  EXPECT_EQ(committed.counts().samples_per_worker, (std::vector<int64_t>{0, 0, 4}));
}

TEST(CommittedWork, SumsTheHashesOfCommittedPushes) {
  const auto number = [](int last) {
    std::string bytes(HashSum::kBytes, '\0');
    bytes.back() = static_cast<char>(last);
    return HashSum::from_bytes(bytes);
  };
  CommittedWork committed(job_of(), 2, kFromStart);
  Commit first = commit(0, {0, 2}, {1, 1});
  first.data_hash = number(5);
  Commit again = commit(0, {0, 2}, {1, 1}, false);
  again.data_hash = number(5);
  Commit later = commit(2, {2, 4}, {1, 1});
  later.data_hash = number(8);
  for (const Commit& c : {first, again, later}) committed.add(c, 0);
  EXPECT_EQ(committed.counts().data_hash, number(13));
}

TEST(CommittedWork, LossIsTheMeanOfTheNewestWholeStep) {
  CommittedWork committed(job_of(), 2, kFromThree);
  EXPECT_FALSE(committed.newest_loss());
  EXPECT_FALSE(committed.mean_loss(5));
  committed.add(commit(4, {0, 4}, {4, 4, 4, 4}), 0);
  EXPECT_FALSE(committed.newest_loss()) << "step 3 is incomplete";
  committed.add(commit(3, {2, 4}, {3, 4}), 0);
  committed.add(commit(3, {0, 2}, {1, 2}), 0);
  EXPECT_EQ(committed.newest_loss(), 4.0);
  EXPECT_EQ(committed.floor(), 5);
  EXPECT_EQ(committed.mean_loss(1), 4.0);
  EXPECT_EQ(committed.mean_loss(2), 3.25);
  EXPECT_EQ(committed.mean_loss(100), 3.25);
}

TEST(CommittedWork, UnderBackupAStepIsWholeWithoutDroppedPushes) {
  CommittedWork committed(job_of("strategy = backup:1\n"), 3, kFromStart);  // shares of 1, 1 and 2
  committed.add(commit(0, {2, 4}, {3, 4}), 2);
  EXPECT_FALSE(committed.newest_loss());
  committed.add(commit(0, {0, 1}, {2}), 0);
  Commit late = commit(0, {1, 2}, {1e9F}, false);
  late.dropped = true;
  committed.add(late, 1);
  EXPECT_EQ(committed.floor(), 1);
  EXPECT_EQ(committed.newest_loss(), 3.0) << "the mean of the applied micro-batches";
  EXPECT_EQ(committed.counts().samples, 6);
  EXPECT_EQ(committed.counts().pushes_applied, 2);
  EXPECT_EQ(committed.counts().pushes_dropped, 1);
  EXPECT_EQ(committed.counts().pushes_dropped_per_worker, (std::vector<int64_t>{0, 1, 0}));
}

TEST(CommittedWork, AnUnknownLossIsNoPartOfTheMean) {
  CommittedWork committed(job_of(), 2, kFromStart);
  committed.add(commit(0, {0, 2}, {kUnknownLoss, 3}), 0);
  committed.add(commit(0, {2, 4}, {5, kUnknownLoss}), 1);
  EXPECT_EQ(committed.newest_loss(), 4.0);
  committed.add(commit(1, {0, 4}, std::vector<float>(4, kUnknownLoss)), 0);
  EXPECT_EQ(committed.floor(), 2);
  EXPECT_FALSE(committed.newest_loss());
  EXPECT_EQ(committed.mean_loss(2), 4.0);
}

TEST(CommittedWork, PushOfARoundCountsForEachOfItsSteps) {
  CommittedWork committed(job_of("strategy = local:2\n"), 2, kFromStart);
  Commit round = commit(0, {0, 2}, {1, 2, 10, 20});
  round.steps = 2;
  committed.add(round, 0);
  EXPECT_EQ(committed.floor(), 0);
  round = commit(0, {2, 4}, {3, 4, 30, 40});
  round.steps = 2;
  committed.add(round, 1);
  EXPECT_EQ(committed.floor(), 2);
  EXPECT_EQ(committed.newest_loss(), 25.0);
  EXPECT_EQ(committed.mean_loss(2), 13.75);
  EXPECT_EQ(committed.counts().samples, 16);
  EXPECT_EQ(committed.counts().pushes_applied, 2);
}

TEST(CommittedWork, CheckpointHasTheCountsOfTheStepsBeforeIt) {
  CommittedWork committed(job_of(), 2, kFromStart);
  for (int64_t step = 0; step < 2; ++step) committed.add(commit(step, {0, 4}, {1, 1, 1, 1}), 0);
  committed.add(commit(3, {0, 2}, {1, 1}), 1);  // a later step, not in the weights of step 3
  EXPECT_EQ(committed.counts_at(3), nullptr) << "step 2 is incomplete";
  committed.add(commit(2, {0, 4}, {1, 1, 1, 1}), 1);
  committed.add(commit(3, {2, 4}, {1, 1}), 1);
  ASSERT_NE(committed.counts_at(3), nullptr);
  EXPECT_EQ(committed.counts_at(3)->samples, 24);
  EXPECT_EQ(committed.counts_at(3)->samples_per_worker, (std::vector<int64_t>{16, 8}));
  EXPECT_EQ(committed.counts_at(2), nullptr) << "no checkpoint is due there";

  CommittedWork again(job_of(), 2, kFromThree, *committed.counts_at(3));
  again.add(commit(3, {0, 4}, {1, 1, 1, 1}), 0);
  EXPECT_EQ(again.counts().samples, 32);
  EXPECT_EQ(again.counts().samples_per_worker, (std::vector<int64_t>{24, 8}));
  EXPECT_EQ(again.samples_of(1), 32) << "earlier terms count";
  EXPECT_EQ(again.counts().pushes_applied, 4);
}

TEST(CommittedWork, VeryLongRunKeepsOnlyTheNewestLosses) {
  CommittedWork committed(job_of(), 1, kFromStart);
  for (int64_t step = 0; step <= static_cast<int64_t>(CommittedWork::kMaxLosses); ++step) {
    committed.add({kAnna, step, {0, 4}, std::vector<float>(4, step == 0 ? 1e9F : 1.0F), true}, 0);
  }
  EXPECT_EQ(committed.mean_loss(INT64_MAX), 1.0);
}

}  // namespace
}  // namespace pushpull

#include "ps/work/fixed_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ps/work_fixture.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

using FixedSharesTest = WorkTest;

TEST_F(FixedSharesTest, AShareIsGrantedToItsOwnerForAllSteps) {
  make("strategy = sync\n", 2);
  join(2);  // a spare
  const wire::Share share = state_of(0).assigned(0);
  const Range range{share.lo(), share.hi()};
  EXPECT_TRUE(taken(grants_.check(share.grant(), worker(0), range, {0, 1})));
  EXPECT_TRUE(taken(grants_.check(share.grant(), worker(0), range, {9, 10})));
  EXPECT_FALSE(taken(grants_.check(share.grant(), worker(1), range, {0, 1})));
  EXPECT_TRUE(work_->has_work(worker(0)));
  EXPECT_FALSE(work_->has_work(worker(2)));
  EXPECT_TRUE(work_->may_evaluate(worker(0), 10, 0));
  EXPECT_FALSE(work_->may_evaluate(worker(1), 10, 0));
  EXPECT_FALSE(work_->may_evaluate(worker(2), 10, 0));
  EXPECT_FALSE(work_->may_evaluate(worker(0), 10, 1000));
}

TEST_F(FixedSharesTest, RankIComputesShareI) {
  make("strategy = sync\n", 2);
  ASSERT_EQ(state_of(1).assigned_size(), 1);
  EXPECT_EQ(state_of(1).assigned(0).lo(), 2);
  EXPECT_EQ(state_of(1).assigned(0).hi(), 4);
  EXPECT_TRUE(work_->leases(*members_.find(worker(0))).empty());
  EXPECT_EQ(work_->samples_at(5), 40) << "every micro-batch of five steps";
}

TEST_F(FixedSharesTest, WorkersWithoutMicroBatchesAreSaidAloud) {
  make("strategy = sync\n", 5);
  EXPECT_THAT(notices(), HasSubstr("1 worker has nothing to compute: a step has only 4 "
                                   "micro-batches; it waits as a spare"));
  EXPECT_EQ(state_of(4).assigned_size(), 0);
}

TEST_F(FixedSharesTest, AVacantShareWaitsForAnIdleWorker) {
  make("strategy = sync\non-worker-loss = wait\n", 2);
  commit(1, 3, {2, 4});
  EXPECT_TRUE(lose(1));
  work_->fill();
  EXPECT_EQ(state_of(0).assigned_size(), 1) << "nobody takes two";
  join(2);
  work_->fill();
  ASSERT_EQ(state_of(2).assigned_size(), 1);
  EXPECT_EQ(state_of(2).assigned(0).from_step(), 3);
  EXPECT_THAT(notices(), HasSubstr("micro-batches 2 to 3 go to worker 2"));
}

TEST_F(FixedSharesTest, UnderContinueABusyWorkerTakesItToo) {
  make("strategy = ssp:2\non-worker-loss = continue\n", 3);
  EXPECT_TRUE(lose(2));
  work_->fill();
  EXPECT_EQ(state_of(0).assigned_size() + state_of(1).assigned_size(), 3);
  const int64_t version = out_.state_version();
  work_->fill();
  EXPECT_EQ(out_.state_version(), version) << "nothing is left to give";
}

TEST_F(FixedSharesTest, AVacancyHasADeadline) {
  make("strategy = sync\non-worker-loss = wait\nreplacement-timeout = 20\n", 2);
  EXPECT_EQ(work_->overdue(1'000'000), "");
  lose(1, 1000);
  EXPECT_EQ(work_->overdue(21'000), "");
  EXPECT_THAT(work_->overdue(21'001),
              HasSubstr("micro-batches 2 to 3 within replacement-timeout = 20.0 s"));
}

TEST_F(FixedSharesTest, AWorkerWithoutAShareHadNoWork) {
  make("strategy = sync\n", 5);
  EXPECT_FALSE(lose(4));
}

TEST_F(FixedSharesTest, NoServerChoosesPushes) {
  make("strategy = sync\n", 2);
  EXPECT_EQ(reason_of(work_->on_arrived(*members_.find(1), {})), "no-choice");
}

}  // namespace
}  // namespace pushpull

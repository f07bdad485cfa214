#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "ps/work/lease_pool.h"
#include "tests/ps/work_fixture.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

class LeasedWorkTest : public WorkTest {
 protected:
  std::vector<wire::Lease> leases(int rank) { return work_->leases(*members_.find(worker(rank))); }
};

TEST_F(LeasedWorkTest, WorkersDrawLeasesAndSparesDoNot) {
  make("strategy = async\n", 2);
  ASSERT_EQ(leases(0).size(), 2U);
  EXPECT_EQ(leases(0)[0].number(), leases(0)[0].number()) << "a lease repeats until it is done";
  members_.find(worker(1))->rank = -1;
  EXPECT_TRUE(leases(1).empty());
  EXPECT_EQ(state_of(0).assigned_size(), 0);
}

TEST_F(LeasedWorkTest, LeaseIsGrantedToItsWorker) {
  make("strategy = async\n", 2);
  for (const wire::Lease& lease : leases(0)) {
    const Range range{lease.lo(), lease.hi()};
    const Range step{lease.step(), lease.step() + 1};
    EXPECT_TRUE(taken(grants_.check(lease.grant(), worker(0), range, step)));
    EXPECT_FALSE(taken(grants_.check(lease.grant(), worker(1), range, step)));
  }
  EXPECT_TRUE(work_->has_work(worker(0)));
  EXPECT_FALSE(work_->has_work(worker(1))) << "it holds no lease";
  const wire::Lease lost = leases(0)[0];
  lose(0);
  const wire::Lease again = leases(1)[0];
  ASSERT_EQ(again.lo(), lost.lo());
  EXPECT_TRUE(taken(grants_.check(again.grant(), worker(1), {again.lo(), again.hi()},
                                  {again.step(), again.step() + 1})));
}

TEST_F(LeasedWorkTest, ChunksAreEvaluatedByTheHolderOfTheLease) {
  make("strategy = async\neval-every = 1\n", 2);
  commit(0, 0, {0, 2});
  commit(1, 0, {2, 4});
  work_->on_barrier_open(1);
  const wire::Lease lease = leases(0)[0];
  ASSERT_TRUE(lease.evaluate());
  EXPECT_FALSE(lease.has_grant());
  EXPECT_TRUE(work_->may_evaluate(worker(0), 1, lease.lo()));
  EXPECT_FALSE(work_->may_evaluate(worker(0), 2, lease.lo()));
  EXPECT_FALSE(work_->may_evaluate(worker(1), 1, lease.lo()));
}

TEST_F(LeasedWorkTest, CommitFreesTheNextLease) {
  make("strategy = async\n", 2);
  const wire::Lease first = leases(0)[0];
  commit(0, first.step(), {first.lo(), first.hi()});
  EXPECT_NE(leases(0)[0].number(), first.number());
}

TEST_F(LeasedWorkTest, LeasesOfALostWorkerAreDrawnAgain) {
  make("strategy = async\n", 2);
  const wire::Lease lost = leases(1)[0];
  EXPECT_TRUE(lose(1));
  work_->fill();
  EXPECT_EQ(leases(0)[0].step(), lost.step());
  EXPECT_EQ(leases(0)[0].lo(), lost.lo());
}

// A worker that waits for another server asks server 0 for nothing.
TEST_F(LeasedWorkTest, StateHasTheReturnedLeaseForAWorkerThatWaitsBehindABarrier) {
  make("strategy = async\non-worker-loss = continue\neval-every = 1\n", 2);
  leases(0);
  EXPECT_EQ(state_of(0).leases_size(), 2);
  EXPECT_EQ(state_of(1).leases_size(), 0);
  commit(0, 0, {0, 2});
  commit(0, 0, {2, 4});
  work_->on_barrier_open(1);
  ASSERT_EQ(leases(1).size(), 2U);
  EXPECT_TRUE(lose(0));
  EXPECT_EQ(state_of(1).leases_size(), 2);
  work_->fill();
  const wire::State state = state_of(1);
  ASSERT_EQ(state.leases_size(), 3);
  EXPECT_EQ(state.leases(2).step(), 0);
  EXPECT_EQ(state.leases(2).lo(), 2);
}

TEST_F(LeasedWorkTest, EvaluationIsDrawnOnceItsBarrierIsOpen) {
  make("strategy = async\neval-every = 5\n", 1);
  const auto evaluates = [&] {
    const auto held = leases(0);
    return std::any_of(held.begin(), held.end(), [](const auto& l) { return l.evaluate(); });
  };
  for (int64_t step = 0; step < 5; ++step) {
    EXPECT_FALSE(evaluates());
    commit(0, step, {0, 4});
  }
  work_->on_barrier_open(5);
  EXPECT_TRUE(evaluates());
  for (int64_t chunk = 0; chunk < evaluations_->chunks(); ++chunk) {
    work_->on_chunk(worker(0), 5, chunk);
  }
  EXPECT_FALSE(evaluates());
}

TEST_F(LeasedWorkTest, WithoutWorkersTheJobHasADeadline) {
  make("strategy = async\nreplacement-timeout = 20\n", 1);
  EXPECT_EQ(work_->overdue(0), "");
  lose(0);
  EXPECT_EQ(work_->overdue(1000), "");
  EXPECT_EQ(work_->overdue(21'000), "");
  EXPECT_THAT(work_->overdue(21'001), HasSubstr("no worker is left"));
  join(1);
  EXPECT_EQ(work_->overdue(30'000), "");
}

TEST_F(LeasedWorkTest, WithFewerThanMinWorkersNoNewLeaseIsDrawn) {
  make("strategy = async\non-worker-loss = continue\nmin-workers = 2\nreplacement-timeout = 20\n",
       2);
  const wire::Lease held = leases(0)[0];
  EXPECT_EQ(work_->overdue(0), "");
  lose(1);
  work_->fill();
  EXPECT_THAT(notices(), HasSubstr("training is paused with 1 worker"));
  EXPECT_EQ(leases(0).size(), 2U) << "a worker may finish its leases";
  commit(0, held.step(), {held.lo(), held.hi()});
  EXPECT_EQ(leases(0).size(), 1U);
  EXPECT_EQ(work_->overdue(1000), "");
  EXPECT_THAT(work_->overdue(21'001), HasSubstr("fewer than min-workers = 2"));
  join(1);
  work_->fill();
  EXPECT_EQ(work_->overdue(30'000), "");
  EXPECT_EQ(leases(0).size(), 2U);
}

}  // namespace
}  // namespace pushpull

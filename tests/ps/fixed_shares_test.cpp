#include "ps/members/fixed_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/ps/work_fixture.h"

namespace pushpull {
namespace {

using AllReduceSharesTest = WorkTest;

TEST_F(AllReduceSharesTest, OwnersGetTheAddressesInShareOrder) {
  make("strategy = allreduce:ring\n", 2);
  const wire::State state = state_of(0);
  ASSERT_EQ(state.peer_endpoints_size(), 2);
  EXPECT_EQ(state.peer_endpoints(0), "tcp://10.0.0.1:7000");
  EXPECT_EQ(state.peer_endpoints(1), "tcp://10.0.0.1:7001");
  EXPECT_EQ(state.peer_incarnations(1), worker(1));
  EXPECT_EQ(state.assigned_size(), 1);
}

TEST_F(AllReduceSharesTest, AShareWithoutOwnerHasNoAddress) {
  make("strategy = allreduce:ring\n", 2);
  lose(1);
  const wire::State state = state_of(0);
  ASSERT_EQ(state.peer_endpoints_size(), 2);
  EXPECT_EQ(state.peer_endpoints(1), "");
  EXPECT_EQ(state.peer_incarnations(1), 0U);
  EXPECT_EQ(state.peer_ranks(1), -1);
}

TEST_F(AllReduceSharesTest, InGroupsOwnersGetThePeersOfTheirStage) {
  make("strategy = allreduce:tree\nstages = 2\n", 4);
  for (int rank = 0; rank < 4; ++rank) {
    const wire::State state = state_of(rank);
    ASSERT_EQ(state.assigned_size(), 1) << rank;
    ASSERT_EQ(state.peer_endpoints_size(), 2) << rank;
    for (int share = 0; share < 2; ++share) {
      const int other = 2 * share + rank % 2;
      EXPECT_EQ(state.peer_endpoints(share), "tcp://10.0.0.1:" + std::to_string(7000 + other));
      EXPECT_EQ(state.peer_incarnations(share), worker(other));
      EXPECT_EQ(state.peer_ranks(share), other);
    }
  }
}

TEST_F(AllReduceSharesTest, ServersLearnWhichWorkerStoresWhat) {
  make("strategy = allreduce:tree\nstages = 2\n", 5);
  wire::State state;
  for (int rank = 0; rank < 5; ++rank) state.add_workers()->set_incarnation(worker(rank));
  work_->add_to_server_state(&state);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(state.workers(rank).share(), rank / 2 + 1) << rank;
    EXPECT_EQ(state.workers(rank).stage(), rank % 2) << rank;
  }
  EXPECT_EQ(state.workers(4).share(), 0) << "a spare stores nothing";
}

}  // namespace

namespace {

using testing::HasSubstr;

class FixedSharesTest : public WorkTest {
 protected:
  // Returns the steps [lo, hi) of each share of a worker.
  std::vector<Range> steps_of(int rank) {
    std::vector<Range> out;
    const wire::State state = state_of(rank);
    for (const wire::Share& s : state.assigned()) out.push_back({s.first_step(), s.to_step()});
    return out;
  }
  void acknowledge(uint64_t incarnation) {
    members_.find(incarnation)->state_version = out_.state_version();
  }
  void commit_step(int64_t step) {
    commit(0, step, {0, 2});
    commit(1, step, {2, 4});
  }
};

TEST_F(FixedSharesTest, ShareIsGrantedToItsOwnerForAllSteps) {
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
  EXPECT_EQ(work_->samples_at(5), 40) << "all micro-batches of five steps";
}

TEST_F(FixedSharesTest, IdleWorkersGetANotice) {
  make("strategy = sync\n", 5);
  EXPECT_THAT(notices(), HasSubstr("1 worker has nothing to compute: a step has only 4 "
                                   "micro-batches; it waits as a spare"));
  EXPECT_EQ(state_of(4).assigned_size(), 0);
}

TEST_F(FixedSharesTest, VacantShareWaitsForAnIdleWorker) {
  make("strategy = sync\non-worker-loss = wait\n", 2);
  commit(1, 3, {2, 4});
  EXPECT_TRUE(lose(1));
  work_->fill();
  EXPECT_EQ(state_of(0).assigned_size(), 1) << "no worker takes two shares";
  join(2);
  work_->fill();
  ASSERT_EQ(state_of(2).assigned_size(), 1);
  EXPECT_EQ(state_of(2).assigned(0).from_step(), 3);
  EXPECT_THAT(notices(), HasSubstr("micro-batches 2 to 3 go to worker 2"));
}

TEST_F(FixedSharesTest, UnderContinueABusyWorkerTakesAVacantShare) {
  make("strategy = ssp:2\non-worker-loss = continue\n", 3);
  EXPECT_TRUE(lose(2));
  work_->fill();
  EXPECT_EQ(state_of(0).assigned_size() + state_of(1).assigned_size(), 3);
  const int64_t version = out_.state_version();
  work_->fill();
  EXPECT_EQ(out_.state_version(), version) << "no vacant share is left";
}

TEST_F(FixedSharesTest, UnderContinueALaterWorkerTakesOneOfTwoShares) {
  make("strategy = sync\non-worker-loss = continue\n", 2);
  lose(1);
  work_->fill();
  ASSERT_EQ(state_of(0).assigned_size(), 2);
  for (const Range share : {Range{0, 2}, Range{2, 4}}) commit(0, 4, share);
  join(1);
  notices();
  work_->fill();
  ASSERT_EQ(state_of(0).assigned_size(), 1);
  ASSERT_EQ(state_of(1).assigned_size(), 1);
  EXPECT_EQ(state_of(1).assigned(0).from_step(), 4);
  EXPECT_THAT(notices(), HasSubstr("go to worker 1"));
  const int64_t chunk = state_of(1).assigned(0).index() == 0 ? 0 : 7;
  EXPECT_TRUE(work_->may_evaluate(worker(1), 5, chunk));
  EXPECT_TRUE(work_->may_evaluate(worker(0), 5, chunk)) << "it may have evaluated before";
}

TEST_F(FixedSharesTest, UnderWaitNoShareMoves) {
  make("strategy = sync\non-worker-loss = wait\n", 2);
  join(2);
  work_->fill();
  EXPECT_EQ(state_of(2).assigned_size(), 0);
}

TEST_F(FixedSharesTest, WithFewerThanMinWorkersTrainingPauses) {
  make("strategy = sync\non-worker-loss = continue\nmin-workers = 2\nreplacement-timeout = 20\n",
       3);
  lose(2, 500);
  work_->fill();
  EXPECT_FALSE(work_->lacks_workers()) << "two workers are enough";
  lose(1, 1000);
  work_->fill();
  EXPECT_THAT(notices(),
              HasSubstr("training is paused with 1 worker, fewer than min-workers = 2: it "
                        "waits for more, up to replacement-timeout = 20.0 s"));
  EXPECT_TRUE(work_->lacks_workers());
  work_->fill();
  EXPECT_EQ(notices(), "") << "the notice comes once";
  EXPECT_EQ(work_->overdue(21'000), "");
  EXPECT_EQ(
      work_->overdue(21'001),
      "[job] training is paused with 1 worker, fewer than min-workers = 2, and not enough have "
      "joined within replacement-timeout = 20.0 s");
  join(1);
  work_->fill();
  EXPECT_THAT(notices(), HasSubstr("training goes on with 2 workers"));
  EXPECT_FALSE(work_->lacks_workers());
  EXPECT_EQ(work_->overdue(1'000'000), "");
}

TEST_F(FixedSharesTest, UnderContinueStepsAreSplitAnewForMoreWorkers) {
  make("strategy = sync\non-worker-loss = continue\n", 2, 2);
  members_.add({.role = wire::ROLE_SERVER, .rank = 1, .incarnation = 2, .peer = "server 1"});
  work_->on_tick();
  EXPECT_EQ(steps_of(0), (std::vector<Range>{{0, 10}}));
  commit_step(0);
  join(2);
  notices();
  work_->on_tick();
  EXPECT_THAT(notices(), HasSubstr("from step 3 on 3 workers share each step"));
  EXPECT_EQ(steps_of(0), (std::vector<Range>{{0, 3}, {3, 10}}));
  EXPECT_EQ(steps_of(2), (std::vector<Range>{{3, 10}}));
  const wire::Share share = state_of(2).assigned(0);
  EXPECT_EQ(share.shares(), 3);
  const Range range{share.lo(), share.hi()};
  EXPECT_TRUE(taken(grants_.check(share.grant(), worker(2), range, {3, 4})));
  EXPECT_FALSE(taken(grants_.check(share.grant(), worker(2), range, {2, 3})));
  ASSERT_EQ(state_of_servers().cuts_size(), 1);
  EXPECT_EQ(state_of_servers().cuts(0).from_step(), 3);
  EXPECT_EQ(state_of_servers().cuts(0).shares(), 3);
  // server 0 sends no weights of step 3 until all members know the new shares
  for (const uint64_t who : {worker(0), worker(1), worker(2), uint64_t{2}}) {
    work_->on_tick();
    EXPECT_EQ(state_of_servers().held_step(), 3) << who << " does not know the new shares";
    acknowledge(who);
  }
  work_->on_tick();
  EXPECT_EQ(state_of_servers().held_step(), 0);
  commit_step(1);
  commit_step(2);
  work_->on_tick();
  EXPECT_EQ(steps_of(0).size(), 2U) << "server 1 may lack a push of step 2";
  members_.find(2)->stats.set_floor(3);
  work_->on_tick();
  EXPECT_EQ(steps_of(0), (std::vector<Range>{{3, 10}}));
  EXPECT_EQ(state_of_servers().cuts_size(), 1);
}

TEST_F(FixedSharesTest, NewSharesDoNotWaitForALostWorker) {
  make("strategy = sync\non-worker-loss = continue\n", 2);
  join(2);
  work_->on_tick();
  for (const int rank : {0, 1}) acknowledge(worker(rank));
  EXPECT_TRUE(lose(2));
  work_->fill();
  EXPECT_EQ(steps_of(0).size() + steps_of(1).size(), 5U) << "first two shares, then three";
  work_->on_tick();
  EXPECT_EQ(state_of_servers().held_step(), 0);
}

TEST_F(FixedSharesTest, StepsAreNotSplitAnewIfThatChangesTheResult) {
  for (const std::string strategy : {"local:2", "ssp:1", "backup:1"}) {
    members_ = Membership(10);
    make("strategy = " + strategy + "\non-worker-loss = continue\n", 2);
    join(2);
    work_->on_tick();
    EXPECT_EQ(state_of_servers().cuts_size(), 0) << strategy;
  }
}

TEST_F(FixedSharesTest, StepsAreNotSplitAnewAtTheEndOrBeyondTheMicroBatches) {
  make("strategy = sync\non-worker-loss = continue\n", 2);
  for (int rank = 2; rank < 6; ++rank) join(rank);
  work_->on_tick();
  EXPECT_EQ(state_of_servers().cuts(0).shares(), 4);
  for (const int owner : {0, 1}) EXPECT_EQ(steps_of(owner).size(), 2U) << "it keeps a share";
  members_ = Membership(10);
  make("strategy = sync\non-worker-loss = continue\n", 2);
  for (int64_t step = 0; step < 8; ++step) commit_step(step);
  join(2);
  work_->on_tick();
  EXPECT_EQ(state_of_servers().cuts_size(), 0) << "the run ends at step 10";
}

TEST_F(FixedSharesTest, VacancyHasADeadline) {
  make("strategy = sync\non-worker-loss = wait\nreplacement-timeout = 20\n", 2);
  EXPECT_EQ(work_->overdue(1'000'000), "");
  lose(1, 1000);
  EXPECT_EQ(work_->overdue(21'000), "");
  EXPECT_THAT(work_->overdue(21'001),
              HasSubstr("micro-batches 2 to 3 within replacement-timeout = 20.0 s"));
}

TEST_F(FixedSharesTest, WorkerWithoutAShareHadNoWork) {
  make("strategy = sync\n", 5);
  EXPECT_FALSE(lose(4));
}

TEST_F(FixedSharesTest, ServersMayNotReportArrivedPushes) {
  make("strategy = sync\n", 2);
  EXPECT_EQ(reason_of(work_->on_arrived(*members_.find(1), {})), "no-choice");
}

}  // namespace

}  // namespace pushpull

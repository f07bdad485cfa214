#include "ps/members/work_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/ps/work_fixture.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class WorkGroupsTest : public WorkTest {};

TEST_F(WorkGroupsTest, WithoutStagesEachWorkerIsAUnit) {
  make("strategy = sync\n", 2);
  EXPECT_EQ(groups_->unit_of(worker(1)), worker(1));
  EXPECT_THAT(groups_->units(), ElementsAre(worker(0), worker(1)));
  EXPECT_FALSE(state_of(0).has_group());
}

TEST_F(WorkGroupsTest, NeighbouringRanksComputeTheStagesOfAShare) {
  make("strategy = sync\nstages = 2\n", 4);
  for (int rank = 0; rank < 4; ++rank) {
    const wire::State state = state_of(rank);
    ASSERT_EQ(state.assigned_size(), 1) << rank;
    EXPECT_EQ(state.assigned(0).index(), rank / 2);
    EXPECT_EQ(state.assigned(0).shares(), 2);
    EXPECT_EQ(state.group().stage(), rank % 2);
    EXPECT_GT(state.group().attempt(), 0);
    ASSERT_EQ(state.group().members_size(), 2);
    for (int stage = 0; stage < 2; ++stage) {
      const int other = rank / 2 * 2 + stage;
      EXPECT_EQ(state.group().members(stage).incarnation(), worker(other));
      EXPECT_EQ(state.group().members(stage).rank(), other);
      EXPECT_EQ(state.group().members(stage).endpoint(),
                "tcp://10.0.0.1:" + std::to_string(8000 + other));
    }
    EXPECT_TRUE(
        taken(grants_.check(state.assigned(0).grant(), worker(rank),
                            {state.assigned(0).lo(), state.assigned(0).hi()}, {0, 1}, rank % 2)));
  }
  EXPECT_NE(state_of(0).group().attempt(), state_of(2).group().attempt());
}

// Activations pass between the workers of a group in each step.
TEST_F(WorkGroupsTest, AGroupIsOnOneHostIfItCan) {
  job_ = job_of("strategy = sync\nstages = 2\n");
  for (int rank = 0; rank < 6; ++rank) {
    join(rank);
    members_.find(worker(rank))->host = rank % 2 == 0 ? "even" : "odd";
  }
  WorkGroups groups(2, members_);
  groups.form();
  const auto unit = [&](int rank) { return groups.unit_of(worker(rank)); };
  EXPECT_EQ(unit(0), unit(2));
  EXPECT_EQ(unit(1), unit(3));
  EXPECT_EQ(unit(4), unit(5)) << "a group on two hosts is better than none";
}

TEST_F(WorkGroupsTest, WorkersLeftOverFromAGroupAreSpares) {
  make("strategy = sync\nstages = 2\n", 5);
  EXPECT_THAT(notices(), HasSubstr("1 worker has nothing to compute: a group of stages = 2"));
  EXPECT_EQ(state_of(4).assigned_size(), 0);
  EXPECT_FALSE(state_of(4).has_group());
}

TEST_F(WorkGroupsTest, ASpareTakesTheStageOfALostWorker) {
  make("strategy = sync\nstages = 2\non-worker-loss = wait\n", 4);
  const int64_t before = state_of(0).group().attempt();
  EXPECT_TRUE(lose(1));
  work_->fill();
  EXPECT_EQ(state_of(0).assigned_size(), 0) << "its share waits for the other stage";
  EXPECT_TRUE(work_->lacks_workers());
  EXPECT_EQ(groups_->missing(), "stage 1");
  join(4);
  work_->fill();
  EXPECT_FALSE(work_->lacks_workers());
  EXPECT_EQ(state_of(4).group().stage(), 1);
  EXPECT_EQ(state_of(0).group().members(1).incarnation(), worker(4));
  EXPECT_GT(state_of(0).group().attempt(), before);
  EXPECT_EQ(state_of(0).group().attempt(), state_of(4).group().attempt());
  EXPECT_EQ(state_of(0).assigned(0).index(), 0);
}

TEST_F(WorkGroupsTest, PlacesOfWorkersInGroupsAndWithout) {
  make("strategy = sync\nstages = 2\non-worker-loss = wait\n", 5);
  const auto place = [&](int rank) {
    const GroupPlace found = groups_->places().at(worker(rank));
    return std::pair(found.group, found.stage);
  };
  EXPECT_EQ(place(0), std::pair(groups_->unit_of(worker(0)), 0));
  EXPECT_EQ(place(3), std::pair(groups_->unit_of(worker(2)), 1));
  EXPECT_EQ(place(4), std::pair(uint64_t{0}, -1));
  lose(3);
  EXPECT_FALSE(groups_->places().contains(worker(3)));
  EXPECT_EQ(place(2), std::pair(uint64_t{0}, 0)) << "it waits for another stage 1";
  EXPECT_TRUE(WorkGroups(1, members_).places().empty());
}

TEST_F(WorkGroupsTest, AWorkerKeepsItsStage) {
  make("strategy = sync\nstages = 2\non-worker-loss = wait\n", 4);
  lose(0);
  lose(2);
  work_->fill();
  EXPECT_TRUE(groups_->units().empty()) << "both that are left have stage 1";
  join(4);
  work_->fill();
  EXPECT_EQ(state_of(4).group().stage(), 0);
}

TEST_F(WorkGroupsTest, TheNewGroupRepeatsWhatMayNotHaveArrived) {
  make("strategy = ssp:1\nstages = 2\non-worker-loss = wait\n", 4);
  commit(1, 0, {0, 2});
  commit(1, 1, {0, 2});
  lose(0);
  join(4);
  work_->fill();
  for (const int rank : {1, 4}) EXPECT_EQ(state_of(rank).assigned(0).from_step(), 1) << rank;
}

TEST_F(WorkGroupsTest, GroupsTakeTheSharesOfAGroupThatIsIncomplete) {
  make("strategy = sync\nstages = 2\non-worker-loss = continue\n", 4);
  const int64_t before = state_of(2).group().attempt();
  lose(1);
  work_->fill();
  for (const int rank : {2, 3}) EXPECT_EQ(state_of(rank).assigned_size(), 2) << rank;
  EXPECT_EQ(state_of(0).assigned_size(), 0);
  EXPECT_GT(state_of(2).group().attempt(), before) << "they agree on where to begin";
  join(4);
  work_->fill();
  for (const int rank : {0, 2, 3, 4}) EXPECT_EQ(state_of(rank).assigned_size(), 1) << rank;
}

TEST_F(WorkGroupsTest, TheLastStageMayReportForAGroupThatHasEnded) {
  make("strategy = sync\nstages = 2\non-worker-loss = wait\n", 2);
  const uint64_t unit = groups_->unit_of(worker(1));
  const int64_t attempt = groups_->attempt_of(unit);
  EXPECT_EQ(groups_->reports_for(worker(1), attempt), unit);
  EXPECT_EQ(groups_->reports_for(worker(0), attempt), 0U) << "stage 0 has no results";
  EXPECT_EQ(groups_->reports_for(worker(1), attempt + 1), 0U);
  const MemberInfo gone = *members_.find(worker(0));
  members_.remove(gone.incarnation);
  work_->lose(0, groups_->lose(gone.incarnation), true);
  EXPECT_EQ(groups_->reports_for(worker(1), attempt), unit);
  EXPECT_TRUE(work_->may_evaluate(unit, 0, 0));
}

TEST_F(WorkGroupsTest, AnAttemptNamesTheUnitOfItsTime) {
  make("strategy = sync\nstages = 2\n", 2);
  const uint64_t unit = groups_->unit_of(worker(1));
  const int64_t first = groups_->attempt_of(unit);
  groups_->work_changed(unit);
  const uint64_t renewed = groups_->renew(unit);
  EXPECT_THAT(groups_->units(), ElementsAre(renewed));
  EXPECT_THAT(groups_->workers_of(renewed), ElementsAre(worker(0), worker(1)));
  EXPECT_EQ(groups_->attempt_of(renewed), first + 2);
  EXPECT_EQ(groups_->reports_for(worker(1), first), unit);
  EXPECT_EQ(groups_->reports_for(worker(1), first + 1), unit);
  EXPECT_EQ(groups_->reports_for(worker(1), first + 2), renewed);
}

// Its program has no other part of the model.
TEST_F(WorkGroupsTest, AWorkerThatHasDeclaredAStageGetsNoOther) {
  job_ = job_of("strategy = sync\nstages = 2\n");
  for (int rank = 0; rank < 4; ++rank) {
    join(rank);
    MemberInfo& member = *members_.find(worker(rank));
    member.stage = rank < 3 ? 1 : 0;
    member.port = 9000 + rank;
    member.local_stages = rank + 1;
  }
  WorkGroups groups(2, members_, 1'000'000);
  groups.form();
  ASSERT_EQ(groups.units().size(), 1U);
  EXPECT_THAT(groups.workers_of(groups.units().front()), ElementsAre(worker(3), worker(0)));
  EXPECT_EQ(groups.missing(), "stage 0");
  EXPECT_EQ(groups.stage_of(worker(2)), 1);
  wire::State state;
  EXPECT_TRUE(groups.add_to_worker_state(&state, worker(0)));
  EXPECT_EQ(state.group().members(0).port(), 9003);
  EXPECT_EQ(state.group().members(0).local_stages(), 4);
  EXPECT_EQ(state.group().attempt(), 1'000'001) << "above those of earlier terms";
}

}  // namespace
}  // namespace pushpull

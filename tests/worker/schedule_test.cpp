// The schedules without servers, messages and time: the pulls that each requests, and when it
// computes.
#include "worker/exchange/schedule.h"

#include <gtest/gtest.h>

#include <memory>

#include "common/base/error.h"
#include "common/job/strategy.h"
#include "tests/worker/exchange_parts.h"
#include "worker/exchange/schedules.h"

namespace pushpull {
namespace {

std::unique_ptr<Schedule> make(const std::string& strategy, int64_t eval_every = 0) {
  WorkPlan plan = ten_steps(eval_every);
  const Strategy parsed = Strategy::parse(strategy);
  plan.barriers.round = parsed.local_steps;
  return make_schedule(parsed, plan);
}

// Answers the schedule's pull with weights of these versions.
std::optional<PullAim> answer_pull(Schedule& schedule, int64_t least, int64_t most,
                                   bool at_barrier = true) {
  const auto aim = schedule.next().pull;
  EXPECT_TRUE(aim) << "the schedule requests no weights";
  return schedule.on_weights({*aim, least, most, aim->at_barrier && at_barrier});
}

TEST(Schedule, SpareIsIdleUntilItHasAShare) {
  for (const char* strategy : {"sync", "local:4", "ssp:2", "backup:1"}) {
    const auto schedule = make(strategy);
    EXPECT_TRUE(schedule->idle()) << strategy;
    EXPECT_EQ(schedule->next().task.kind, Task::kWait) << strategy;
    EXPECT_FALSE(schedule->next().pull) << strategy;
    EXPECT_TRUE(schedule->on_shares(state_with({0}))) << strategy;
    EXPECT_FALSE(schedule->idle()) << strategy;
    EXPECT_FALSE(schedule->on_shares(state_with({0})))
        << strategy << ": the share is already known";
  }
  EXPECT_FALSE(make("async")->idle()) << "server 0 may have a lease";
}

TEST(Schedule, UnknownShareIsRefused) {
  for (const char* strategy : {"sync", "ssp:2", "backup:1"}) {
    EXPECT_THROW(make(strategy)->on_shares(state_with({2})), Error) << strategy;
    EXPECT_THROW(make(strategy)->on_shares(state_with({0}, -1)), Error) << strategy;
  }
}

TEST(Schedule, InLockstepANewcomerPullsTheNewestAndThenOneVersion) {
  const auto schedule = make("sync");
  schedule->on_shares(state_with({0}));
  EXPECT_TRUE(schedule->next().pull->is_newest());
  const auto again = answer_pull(*schedule, 4, 5);
  ASSERT_TRUE(again) << "servers are a step apart";
  EXPECT_EQ(again->versions, PullAim::kExact);
  EXPECT_EQ(again->clock, 4);
  EXPECT_TRUE(again->may_be_past);
  EXPECT_FALSE(schedule->on_weights({*again, 4, 4, false}));
  EXPECT_EQ(schedule->next().task, (Task{Task::kCompute, 4, {0, 2}, 1}));
}

TEST(Schedule, InLockstepAGroupBeginsAtTheStepThatItHasAgreedOn) {
  const auto schedule = make("sync");
  wire::State state = state_with({0});
  state.mutable_group()->set_attempt(7);
  EXPECT_TRUE(schedule->on_shares(state));
  EXPECT_FALSE(schedule->proposed_step());
  EXPECT_FALSE(answer_pull(*schedule, 4, 5)) << "only the version is of interest";
  EXPECT_EQ(schedule->proposed_step(), 4);
  EXPECT_EQ(schedule->next().task.kind, Task::kWait);
  EXPECT_FALSE(schedule->next().pull);
  EXPECT_FALSE(schedule->wanted());
  schedule->begin_at(3);
  EXPECT_FALSE(schedule->proposed_step());
  EXPECT_EQ(schedule->next().pull->clock, 3) << "servers still have that version";
  EXPECT_FALSE(answer_pull(*schedule, 3, 3));
  EXPECT_EQ(schedule->next().task, (Task{Task::kCompute, 3, {0, 2}, 1}));
  schedule->on_pushed(3, {0, 2});
  EXPECT_FALSE(schedule->on_shares(state)) << "the same attempt";
  state.mutable_group()->set_attempt(8);
  EXPECT_TRUE(schedule->on_shares(state));
  EXPECT_FALSE(schedule->wanted());
  answer_pull(*schedule, 4, 4);
  schedule->begin_at(4);
  EXPECT_EQ(schedule->next().task, (Task{Task::kCompute, 4, {0, 2}, 1})) << "its weights are here";
}

TEST(Schedule, InLockstepAGroupWaitsForAServerThatTakesALostPlace) {
  const auto schedule = make("sync");
  wire::State state = state_with({0});
  state.mutable_group()->set_attempt(7);
  schedule->on_shares(state);
  const auto again = answer_pull(*schedule, 1, 4);
  EXPECT_FALSE(schedule->proposed_step()) << "the other servers no longer have version 1";
  ASSERT_TRUE(again);
  EXPECT_EQ(again->clock, 3);
  EXPECT_TRUE(again->may_be_past);
  EXPECT_FALSE(schedule->on_weights({*again, 3, 3, false}));
  EXPECT_EQ(schedule->proposed_step(), 3);
}

wire::State state_of_stage(int stage, int64_t attempt) {
  wire::State state = state_with({0});
  state.mutable_group()->set_attempt(attempt);
  state.mutable_group()->set_stage(stage);
  return state;
}

TEST(Schedule, UnderBackupStage0LeadsItsGroup) {
  const auto schedule = make("backup:1", 4);
  EXPECT_FALSE(schedule->leads());
  schedule->on_shares(state_of_stage(0, 7));
  EXPECT_TRUE(schedule->leads());
  EXPECT_FALSE(schedule->awaits_task());
  EXPECT_EQ(schedule->proposed_step(), 0) << "no step is agreed on";
  EXPECT_TRUE(schedule->next().pull->is_newest());
  answer_pull(*schedule, 3, 3);
  EXPECT_EQ(schedule->next().task, (Task{Task::kCompute, 3, {0, 2}}));
  EXPECT_TRUE(schedule->on_shares(state_of_stage(0, 8)));
  EXPECT_TRUE(schedule->next().pull->is_newest()) << "the group begins anew at the newest step";
}

TEST(Schedule, UnderBackupTheOtherStagesComputeWhatStage0Tells) {
  const auto schedule = make("backup:1", 4);
  schedule->on_shares(state_of_stage(1, 7));
  EXPECT_TRUE(schedule->awaits_task());
  const Task third{Task::kCompute, 3, {0, 2}};
  schedule->follow(third);
  EXPECT_FALSE(schedule->awaits_task());
  EXPECT_EQ(schedule->wanted(), third);
  EXPECT_EQ(schedule->next().pull->clock, 3);
  EXPECT_FALSE(answer_pull(*schedule, 3, 5)) << "the step drops the push: any weights do";
  EXPECT_EQ(schedule->next().task, third);
  schedule->on_pushed(3, {0, 2});
  EXPECT_TRUE(schedule->awaits_task());
  EXPECT_EQ(schedule->next().pull->clock, 4) << "the answer confirms the push";
  const Task evaluation{Task::kEvaluate, 4, {0, 3}};
  schedule->follow(evaluation);
  EXPECT_TRUE(schedule->next().pull->at_barrier);
  EXPECT_FALSE(answer_pull(*schedule, 5, 6, false));
  EXPECT_EQ(schedule->next().task, evaluation);
  EXPECT_TRUE(schedule->is_past_barrier()) << "its chunks were evaluated";
  schedule->on_evaluated();
  EXPECT_FALSE(schedule->is_past_barrier());
  schedule->follow({Task::kCompute, 4, {0, 2}});
  EXPECT_TRUE(schedule->next().pull) << "these were not to train with";
  EXPECT_TRUE(schedule->on_shares(state_of_stage(1, 8)));
  EXPECT_TRUE(schedule->awaits_task()) << "what an earlier group was told is void";
}

TEST(Schedule, UnderBackupAStagePullsTheNextWeightsUntilItIsTold) {
  const auto schedule = make("backup:1", 4);
  schedule->on_shares(state_of_stage(1, 7));
  answer_pull(*schedule, 2, 2);
  EXPECT_FALSE(schedule->next().pull) << "stage 0 may choose them";
  EXPECT_EQ(schedule->next().task.kind, Task::kWait);
  schedule->follow({Task::kCompute, 2, {0, 2}});
  EXPECT_EQ(schedule->next().task.step, 2);
  schedule->on_pushed(2, {0, 2});
  const PullAim third = *schedule->next().pull;
  EXPECT_EQ(third.clock, 3);
  EXPECT_TRUE(schedule->gives_up(third)) << "another group has begun";
  schedule->follow({Task::kCompute, 5, {0, 2}});
  EXPECT_FALSE(schedule->gives_up(third)) << "it may bring the weights of step 5";
  EXPECT_FALSE(schedule->on_weights({third, 4, 4, false}));
  EXPECT_EQ(schedule->next().pull->clock, 5);
  answer_pull(*schedule, 5, 6);
  EXPECT_EQ(schedule->next().task.step, 5);
  schedule->on_pushed(5, {0, 2});
  const PullAim sixth = *schedule->next().pull;
  schedule->follow({Task::kEvaluate, 4, {0, 3}});
  EXPECT_TRUE(schedule->gives_up(sixth)) << "it may wait for this evaluation";
  EXPECT_TRUE(schedule->next().pull->at_barrier);
}

TEST(Schedule, UnderBackupATaskThatTheGroupDoesNotHaveIsRefused) {
  const auto schedule = make("backup:1", 4);
  schedule->on_shares(state_of_stage(1, 7));
  for (const Task& task : {Task{Task::kCompute, 10, {0, 2}}, Task{Task::kCompute, -1, {0, 2}},
                           Task{Task::kCompute, 3, {0, 1}}, Task{Task::kCompute, 3, {}},
                           Task{Task::kEvaluate, 11, {0, 1}}, Task{Task::kEvaluate, 4, {0, 99}},
                           Task{Task::kEvaluate, 4, {2, 1}}}) {
    EXPECT_THROW(schedule->follow(task), Error) << task.step << ", " << task.range.hi;
  }
}

TEST(Schedule, InLockstepEachStepIsComputedOnItsVersion) {
  const auto schedule = make("sync");
  schedule->on_shares(state_with({0}));
  answer_pull(*schedule, 0, 0);
  EXPECT_EQ(schedule->pull_after(0)->clock, 1);
  EXPECT_FALSE(schedule->pull_after(9)) << "the end is evaluated before the next pull";
  schedule->on_pushed(0, {0, 2});
  const auto aim = schedule->next().pull;
  EXPECT_EQ(aim->clock, 1);
  EXPECT_EQ(aim->versions, PullAim::kExact);
  EXPECT_FALSE(aim->may_be_past);
  EXPECT_EQ(schedule->wanted()->step, 1);
  EXPECT_FALSE(schedule->weights_fit(*schedule->wanted()));
  EXPECT_TRUE(schedule->gives_up(*aim)) << "a pull may be obsolete after a new share";
  EXPECT_FALSE(schedule->gives_up({.versions = PullAim::kNewest}));
}

TEST(Schedule, InLockstepTheLastPushOfAnEndingShareIsConfirmed) {
  const auto schedule = make("sync");
  wire::State state = state_with({0});
  state.mutable_assigned(0)->set_to_step(1);
  schedule->on_shares(state);
  answer_pull(*schedule, 0, 0);
  EXPECT_EQ(schedule->next().task.kind, Task::kCompute);
  schedule->on_pushed(0, {0, 2});
  ASSERT_TRUE(schedule->next().pull) << "servers may still lack the push";
  EXPECT_EQ(schedule->next().pull->clock, 1);
  answer_pull(*schedule, 1, 1);
  EXPECT_FALSE(schedule->next().pull);
  EXPECT_EQ(schedule->next().task.kind, Task::kDone);
}

TEST(Schedule, LocalComputesRoundsAndPushesOneSum) {
  const auto schedule = make("local:4");
  schedule->on_shares(state_with({0}));
  answer_pull(*schedule, 0, 0);
  EXPECT_EQ(schedule->next().task.steps, 4);
  EXPECT_EQ(schedule->steps_from(8), 2);
  EXPECT_EQ(schedule->nodes({0, 3}), (std::vector<Range>{{0, 3}}));
  EXPECT_EQ(make("sync")->nodes({0, 3}), (std::vector<Range>{{0, 2}, {2, 3}}));
}

TEST(Schedule, SspUsesWeightsForOnePushAndNamesTheirVersions) {
  const auto schedule = make("ssp:2", 4);
  schedule->on_shares(state_with({0}, 3));
  EXPECT_EQ(schedule->next().pull->versions, PullAim::kPerServer);
  EXPECT_EQ(schedule->next().pull->clock, 3) << "the coordinator's step";
  EXPECT_FALSE(answer_pull(*schedule, 40, 41)) << "each server counts its own versions";
  EXPECT_EQ(schedule->next().task.step, 3);
  schedule->on_pushed(3, {0, 2});
  EXPECT_TRUE(schedule->next().pull->at_barrier);
  answer_pull(*schedule, 42, 42);
  EXPECT_EQ(schedule->next().task.kind, Task::kEvaluate);
  schedule->on_evaluated();
  EXPECT_EQ(schedule->next().task.kind, Task::kCompute) << "computes on the barrier's weights";
}

TEST(Schedule, SspSkipsAnEvaluationOfAPastBarrier) {
  const auto schedule = make("ssp:2", 4);
  schedule->on_shares(state_with({0}, 4));
  ASSERT_TRUE(schedule->next().pull->at_barrier);
  answer_pull(*schedule, 42, 43, false);
  EXPECT_EQ(schedule->next().task.kind, Task::kCompute);
}

TEST(Schedule, BackupComputesOnTheNewestVersionAndEvaluatesPassedBarriers) {
  const auto schedule = make("backup:1", 3);
  schedule->on_shares(state_with({0}));
  answer_pull(*schedule, 5, 5);
  const auto barrier = schedule->next().pull;
  ASSERT_TRUE(barrier);
  EXPECT_TRUE(barrier->at_barrier);
  EXPECT_EQ(barrier->clock, 3);
  answer_pull(*schedule, 3, 3);
  EXPECT_EQ(schedule->next().task, (Task{Task::kEvaluate, 3, {0, 2}, 1}));
  schedule->on_evaluated();
  EXPECT_TRUE(schedule->next().pull->is_newest());
  answer_pull(*schedule, 5, 5);
  EXPECT_EQ(schedule->next().task, (Task{Task::kCompute, 5, {0, 2}, 1}));
  schedule->on_pushed(5, {0, 2});
  EXPECT_EQ(schedule->next().pull->clock, 6);
}

TEST(Schedule, BackupGivesUpAPullThatAnEvaluationOfItsNewShareHoldsBack) {
  const auto schedule = make("backup:1", 4);
  schedule->on_shares(state_of_stage(0, 7));
  answer_pull(*schedule, 3, 3);
  schedule->on_pushed(3, {0, 2});
  answer_pull(*schedule, 4, 4);
  schedule->on_evaluated();
  schedule->on_pushed(4, {0, 2});
  const PullAim fifth = *schedule->next().pull;
  EXPECT_EQ(fifth.clock, 5);
  EXPECT_TRUE(schedule->on_shares(state_of_stage(0, 8)));
  EXPECT_TRUE(schedule->gives_up(fifth)) << "it may wait for the evaluation at 4";
  const PullAim anew = *schedule->next().pull;
  EXPECT_EQ(anew.clock, 4);
  EXPECT_FALSE(schedule->gives_up(anew)) << "its answer serves any share";
}

TEST(Schedule, BackupPullsTheLowerOfTwoVersionsUnlessItIsPast) {
  const auto schedule = make("backup:1");
  schedule->on_shares(state_with({0}));
  const auto lower = answer_pull(*schedule, 2, 3);
  ASSERT_TRUE(lower);
  EXPECT_EQ(lower->clock, 2);
  EXPECT_TRUE(lower->may_be_past);
}

TEST(Schedule, ARunThatStartsAtItsEndHasOnlyItsEvaluationLeft) {
  for (const char* strategy : {"sync", "local:4", "ssp:2", "backup:1"}) {
    for (const int64_t eval_every : {0, 3}) {
      WorkPlan plan = ten_steps(eval_every);
      plan.barriers.start_step = plan.barriers.end_step;
      const auto schedule = make_schedule(Strategy::parse(strategy), plan);
      schedule->on_shares(state_with({1}, 10));
      for (int pulls = 0; schedule->next().pull && pulls < 3; ++pulls)
        answer_pull(*schedule, 10, 10);
      EXPECT_EQ(schedule->next().task, (Task{Task::kEvaluate, 10, {2, 4}, 1})) << strategy;
      schedule->on_evaluated();
      EXPECT_EQ(schedule->next().task.kind, Task::kDone) << strategy;
    }
  }
}

google::protobuf::RepeatedPtrField<wire::Lease> leases(int64_t number, int64_t step, int lo, int hi,
                                                       bool evaluate = false) {
  google::protobuf::RepeatedPtrField<wire::Lease> out;
  wire::Lease* lease = out.Add();
  lease->set_number(number);
  lease->set_step(step);
  lease->set_lo(lo);
  lease->set_hi(hi);
  lease->set_evaluate(evaluate);
  return out;
}

TEST(Schedule, LeaseIsComputedOnceOnFreshWeights) {
  const auto schedule = make("async");
  EXPECT_TRUE(schedule->draws_leases());
  EXPECT_TRUE(schedule->next().pull->leases);
  EXPECT_TRUE(schedule->on_leases(leases(1, 0, 0, 2)));
  EXPECT_TRUE(schedule->on_leases(leases(1, 0, 2, 4))) << "the number is known";
  EXPECT_EQ(schedule->newest_lease(), 1);
  EXPECT_EQ(schedule->next().pull->versions, PullAim::kPerServer);
  answer_pull(*schedule, 7, 8);
  EXPECT_EQ(schedule->next().task, (Task{Task::kCompute, 0, {0, 2}, 1}));
  schedule->on_leases(leases(2, 1, 0, 2));
  EXPECT_EQ(schedule->upcoming()->step, 1);
  schedule->on_pushed(0, {0, 2});
  EXPECT_FALSE(schedule->weights_fit(*schedule->wanted())) << "the weights have been used";
}

TEST(Schedule, LeaseOfAnEarlierStepIsComputedBeforeOneWhoseWeightsAreNotHere) {
  const auto schedule = make("async");
  schedule->on_leases(leases(1, 10, 0, 2, true));
  schedule->on_leases(leases(2, 10, 2, 4, true));
  const PullAim evaluation = *schedule->next().pull;
  EXPECT_FALSE(schedule->gives_up(evaluation));
  wire::State state;
  *state.mutable_leases() = leases(3, 9, 0, 2);
  EXPECT_TRUE(schedule->on_shares(state));
  EXPECT_EQ(schedule->wanted()->step, 9);
  EXPECT_EQ(schedule->upcoming(), std::nullopt) << "an evaluation";
  EXPECT_TRUE(schedule->gives_up(evaluation));
  answer_pull(*schedule, 3, 3);
  schedule->on_leases(leases(4, 8, 0, 2));
  EXPECT_EQ(schedule->next().task.step, 9) << "the worker may be computing it";
  EXPECT_EQ(schedule->upcoming()->step, 8);
  schedule->on_pushed(9, {0, 2});
  EXPECT_EQ(schedule->wanted()->step, 8);
  schedule->on_pushed(8, {0, 2});
  EXPECT_EQ(schedule->wanted()->kind, Task::kEvaluate);
  EXPECT_EQ(schedule->wanted()->range, (Range{0, 2}));
}

TEST(Schedule, AGroupComputesLeasesInTheOrderOfTheirNumbers) {
  const auto schedule = make("async");
  const auto of_group = [](int64_t attempt, int64_t number, int64_t step) {
    auto out = leases(number, step, 0, 2);
    out[0].set_attempt(attempt);
    return out;
  };
  const PullAim before = *schedule->next().pull;
  wire::State state;
  state.mutable_group()->set_attempt(3);
  EXPECT_TRUE(schedule->on_shares(state)) << "the group is new";
  EXPECT_TRUE(schedule->gives_up(before)) << "numbers of leases begin anew";
  EXPECT_FALSE(schedule->on_shares(state));
  EXPECT_FALSE(schedule->gives_up(*schedule->next().pull));
  EXPECT_FALSE(schedule->on_leases(of_group(2, 1, 4))) << "of an earlier attempt";
  schedule->on_leases(of_group(3, 1, 9));
  schedule->on_leases(of_group(3, 2, 8));
  EXPECT_EQ(schedule->wanted()->step, 9);
  answer_pull(*schedule, 3, 3);
  const Task task = schedule->next().task;
  EXPECT_EQ(task.step, 9);
  schedule->on_pushed(9, {0, 2});
  EXPECT_EQ(schedule->next().pull->after, task) << "the other stages may not have pushed yet";
  state.mutable_group()->set_attempt(4);
  *state.mutable_leases() = of_group(4, 1, 9);
  EXPECT_TRUE(schedule->on_shares(state));
  EXPECT_EQ(schedule->wanted(), task);
  EXPECT_FALSE(schedule->weights_fit(task)) << "the task begins again";
  EXPECT_FALSE(schedule->next().pull->after) << "nobody completes that push";
  EXPECT_EQ(schedule->newest_lease(), 1);
  schedule->on_shares({});
  EXPECT_FALSE(schedule->wanted()) << "the group is incomplete";
}

TEST(Schedule, PushHasTheGrantOfItsLease) {
  const auto schedule = make("async");
  EXPECT_EQ(schedule->grant({0, 2}).mac(), "") << "no lease";
  for (const int64_t number : {1, 2}) {
    auto lease = leases(number, number, 0, 2);
    lease[0].mutable_grant()->set_mac("of lease " + std::to_string(number));
    schedule->on_leases(lease);
  }
  EXPECT_EQ(schedule->grant({0, 2}).mac(), "of lease 1");
  schedule->on_pushed(1, {0, 2});
  EXPECT_EQ(schedule->grant({0, 2}).mac(), "of lease 2");
}

TEST(Schedule, LeasesOutsideTheRunAreIgnored) {
  const auto schedule = make("async");
  for (const auto& [step, lo, hi] :
       {std::tuple{-1, 0, 2}, {11, 0, 2}, {0, -1, 2}, {0, 2, 2}, {0, 0, 5}}) {
    EXPECT_FALSE(schedule->on_leases(leases(9, step, lo, hi))) << step << ' ' << lo << ' ' << hi;
  }
}

TEST(Schedule, ReleasedWeightsAreNotUsed) {
  for (const char* strategy : {"ssp:2", "backup:1"}) {
    const auto schedule = make(strategy);
    schedule->on_shares(state_with({0}));
    answer_pull(*schedule, 0, 0);
    const Task task = schedule->next().task;
    EXPECT_TRUE(schedule->weights_fit(task)) << strategy;
    schedule->on_weights_released();
    EXPECT_FALSE(schedule->weights_fit(task)) << strategy;
  }
}

}  // namespace
}  // namespace pushpull

#include "ps/members/lease_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "tests/ps/refusals.h"
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
    work_->on_chunk(worker(0), 5, chunk, false);
  }
  EXPECT_FALSE(evaluates());
}

TEST_F(LeasedWorkTest, TheWorkersOfAGroupGetTheSameLeases) {
  make("strategy = async\nstages = 2\n", 4);
  work_->fill();
  const std::vector<wire::Lease> first = leases(0);
  const std::vector<wire::Lease> second = leases(1);
  ASSERT_EQ(first.size(), 2U);
  ASSERT_EQ(second.size(), 2U);
  for (size_t i = 0; i < first.size(); ++i) {
    const Range range{first[i].lo(), first[i].hi()};
    const Range step{first[i].step(), first[i].step() + 1};
    EXPECT_EQ(first[i].number(), second[i].number());
    EXPECT_EQ(first[i].lo(), second[i].lo());
    EXPECT_EQ(first[i].attempt(), groups_->attempt_of(groups_->unit_of(worker(0))));
    EXPECT_TRUE(taken(grants_.check(first[i].grant(), worker(0), range, step, 0)));
    EXPECT_TRUE(taken(grants_.check(second[i].grant(), worker(1), range, step, 1)));
    EXPECT_FALSE(taken(grants_.check(first[i].grant(), worker(0), range, step, 1)));
  }
  EXPECT_NE(leases(2)[0].step(), first[0].step()) << "another group";
  EXPECT_EQ(state_of(1).leases_size(), 2);
  EXPECT_TRUE(state_of(1).has_group());
}

TEST_F(LeasedWorkTest, AGroupThatHasChangedComputesItsLeasesAgain) {
  make("strategy = async\nstages = 2\non-worker-loss = continue\n", 2);
  work_->fill();
  const wire::Lease lease = leases(0)[0];
  const int64_t before = lease.attempt();
  EXPECT_TRUE(lose(0));
  work_->fill();
  EXPECT_TRUE(leases(1).empty()) << "stage 0 is missing";
  EXPECT_TRUE(work_->lacks_workers());
  EXPECT_EQ(work_->overdue(0), "");
  EXPECT_THAT(work_->overdue(100'000'000), HasSubstr("it lacks stage 0"));
  join(4);
  work_->fill();
  Commit late{worker(1), lease.step(), {lease.lo(), lease.hi()}, {}, true};
  late.attempt = before;
  work_->on_commit(late);  // the push of the earlier group was under way
  ASSERT_EQ(leases(4).size(), 2U);
  EXPECT_EQ(leases(4)[0].lo(), lease.lo());
  EXPECT_EQ(leases(1)[0].lo(), lease.lo()) << "both workers know of the same leases";
  late.attempt = leases(4)[0].attempt();
  EXPECT_GT(late.attempt, before);
  work_->on_commit(late);
  EXPECT_NE(leases(1)[0].number(), 1);
}

TEST_F(LeasedWorkTest, AReturnedLeaseOfAnEarlierStepBeginsTheGroupAnew) {
  make("strategy = async\nstages = 2\non-worker-loss = continue\neval-every = 1\n", 4);
  work_->fill();
  leases(0);
  commit(1, 0, {0, 2});
  commit(1, 0, {2, 4});
  work_->on_barrier_open(1);
  ASSERT_EQ(leases(2).size(), 2U);
  const uint64_t unit = groups_->unit_of(worker(2));
  const int64_t attempt = groups_->attempt_of(unit);
  EXPECT_TRUE(lose(0));
  work_->fill();
  const wire::State state = state_of(3);
  ASSERT_EQ(state.leases_size(), 3);
  EXPECT_EQ(state.leases(0).step(), 0) << "it was finished last, and may not be at every server";
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(state.leases(i).number(), i + 1);
    EXPECT_EQ(state.leases(i).attempt(), state.group().attempt());
  }
  EXPECT_GT(state.group().attempt(), attempt);
  EXPECT_NE(groups_->unit_of(worker(2)), unit) << "results of the evaluation before do not count";
  EXPECT_FALSE(work_->may_evaluate(unit, 1, state.leases(1).lo()));
  EXPECT_TRUE(work_->may_evaluate(groups_->unit_of(worker(2)), 1, state.leases(1).lo()));
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

namespace {

constexpr uint64_t kAnna = 1;
constexpr uint64_t kBert = 2;
const Grants& key_of_run() {
  static const Grants one("a key of this run");
  return one;
}
const FollowedEvaluations& not_followed() {
  static const Job job;
  static const FollowedEvaluations none(job, Declaration(), 0, 10, EvaluationRecord());
  return none;
}

using Work = std::tuple<int64_t, int32_t, int32_t>;  // step, lo, hi

Work work_of(const wire::Lease& lease) { return {lease.step(), lease.lo(), lease.hi()}; }

TEST(LeasePool, GrantsTwoLeasesInOrderAndRepeatsThemUntilTheyAreDone) {
  const Barriers barriers{0, 0, 0, 10};
  LeasePool pool(barriers, not_followed(), 2, 8, 0, key_of_run());
  const auto first = pool.grant(kAnna);
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(work_of(first[0]), (Work{0, 0, 4}));
  EXPECT_EQ(work_of(first[1]), (Work{0, 4, 8}));
  EXPECT_EQ(first[0].number(), 1);
  EXPECT_EQ(first[1].number(), 2);
  const auto again = pool.grant(kAnna);
  ASSERT_EQ(again.size(), 2U);
  EXPECT_EQ(again[0].number(), 1);
  EXPECT_EQ(work_of(pool.grant(kBert)[0]), (Work{1, 0, 4}));
  pool.finish_training(kAnna, 0, {0, 4});
  const auto next = pool.grant(kAnna);
  ASSERT_EQ(next.size(), 2U);
  EXPECT_EQ(next[0].number(), 2);
  EXPECT_EQ(next[1].number(), 3);
  EXPECT_EQ(work_of(next[1]), (Work{2, 0, 4}));
}

TEST(LeasePool, FinishingTwiceOrForAnotherChangesNothing) {
  const Barriers barriers{0, 0, 0, 10};
  LeasePool pool(barriers, not_followed(), 2, 8, 0, key_of_run());
  pool.grant(kAnna);
  pool.finish_training(kBert, 0, {0, 4});
  pool.finish_training(kAnna, 5, {0, 4});
  EXPECT_EQ(pool.grant(kAnna).size(), 2U);
  EXPECT_EQ(pool.grant(kAnna)[0].number(), 1);
  pool.finish_training(kAnna, 0, {0, 4});
  pool.finish_training(kAnna, 0, {0, 4});
  EXPECT_EQ(pool.grant(kAnna)[0].number(), 2);
}

TEST(LeasePool, StepsAfterAnAwaitedEvaluationWaitForItsResult) {
  const Job job = job_of("eval-every = 2\nstop-when = loss:1\n");
  const Barriers barriers = barriers_of(job, 0, 10);
  Declaration declaration;
  declaration.heads = {{"label", Metric::kAccuracy, 1}};
  declaration.test_samples = 8;
  FollowedEvaluations followed(job, declaration, 0, 10, EvaluationRecord());
  LeasePool pool(barriers, followed, 1, 8, 0, key_of_run());
  EXPECT_EQ(pool.grant(kAnna).size(), 2U);
  for (const int64_t step : {0, 1}) pool.finish_training(kAnna, step, {0, 8});
  pool.open_barrier(2);
  EXPECT_TRUE(pool.grant(kAnna).empty());
  EXPECT_FALSE(followed.add({2, {{declaration.heads[0], {1.0, 8, 4.0}}}}, barriers));
  EXPECT_EQ(work_of(pool.grant(kAnna).at(0)), (Work{2, 0, 8}));
}

TEST(LeasePool, StepsAfterABarrierWaitUntilItIsOpen) {
  const Barriers barriers{3, 0, 0, 6};
  LeasePool pool(barriers, not_followed(), 1, 8, 4, key_of_run());
  EXPECT_EQ(pool.grant(kAnna).size(), 2U);
  EXPECT_EQ(pool.grant(kBert).size(), 1U) << "only three steps precede the barrier";
  for (int64_t step = 0; step < 2; ++step) pool.finish_training(kAnna, step, {0, 8});
  pool.finish_training(kBert, 2, {0, 8});
  EXPECT_TRUE(pool.grant(kAnna).empty());
  pool.open_barrier(3);
  const auto leases = pool.grant(kAnna);
  ASSERT_EQ(leases.size(), 2U);
  EXPECT_TRUE(leases[0].evaluate()) << "the evaluation of the barrier comes first";
  EXPECT_EQ(work_of(leases[0]), (Work{3, 0, 4}));
  EXPECT_EQ(work_of(leases[1]), (Work{3, 0, 8}));
}

TEST(LeasePool, BarrierWithoutEvaluationOnlyReleasesSteps) {
  const Barriers barriers{0, 2, 0, 4};
  LeasePool pool(barriers, not_followed(), 1, 8, 4, key_of_run());
  pool.grant(kAnna);
  pool.finish_training(kAnna, 0, {0, 8});
  pool.finish_training(kAnna, 1, {0, 8});
  pool.open_barrier(2);
  EXPECT_FALSE(pool.grant(kAnna)[0].evaluate());
}

TEST(LeasePool, EvaluationLeaseIsDoneWithAnyOfItsChunks) {
  const Barriers barriers{0, 0, 0, 1};
  LeasePool pool(barriers, not_followed(), 2, 8, 6, key_of_run());
  pool.grant(kAnna);
  pool.finish_training(kAnna, 0, {0, 4});
  pool.finish_training(kAnna, 0, {4, 8});
  pool.open_barrier(1);
  ASSERT_EQ(pool.grant(kAnna).size(), 2U);
  pool.finish_evaluation(kAnna, 1, 4);
  const auto left = pool.grant(kAnna);
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(work_of(left[0]), (Work{1, 0, 3}));
}

TEST(LeasePool, FewerChunksThanSharesGiveNoEmptyLease) {
  const Barriers barriers{0, 0, 0, 1};
  LeasePool pool(barriers, not_followed(), 4, 8, 2, key_of_run());
  for (int share = 0; share < 4; ++share) {
    pool.grant(kAnna);
    pool.finish_training(kAnna, 0, {share * 2, share * 2 + 2});
  }
  pool.open_barrier(1);
  std::set<int32_t> chunks;
  for (const wire::Lease& lease : pool.grant(kAnna)) {
    EXPECT_LT(lease.lo(), lease.hi());
    for (int32_t c = lease.lo(); c < lease.hi(); ++c) chunks.insert(c);
  }
  EXPECT_EQ(chunks.size(), 2U);
}

TEST(LeasePool, LeasesAndLastPushOfALostWorkerAreDrawnFirst) {
  const Barriers barriers{0, 0, 0, 10};
  LeasePool pool(barriers, not_followed(), 1, 8, 0, key_of_run());
  pool.grant(kAnna);  // 0, 1
  pool.finish_training(kAnna, 0, {0, 8});
  pool.grant(kAnna);  // 1, 2
  pool.lose(kAnna);
  pool.lose(kAnna);
  std::vector<int64_t> steps;
  for (int i = 0; i < 4; ++i) {
    const auto leases = pool.grant(kBert);
    steps.push_back(leases[0].step());
    EXPECT_EQ(leases[0].number(), i + 1) << "numbers start anew for the new holder";
    pool.finish_training(kBert, leases[0].step(), {0, 8});
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{0, 1, 2, 3}));
}

// Two servers; the last push of a worker has reached server 0 only. A worker that draws an
// evaluation first waits for the other server, which waits for the returned lease.
TEST(LeasePool, ReturnedLeasesAreDrawnBeforeTheEvaluationsBehindThem) {
  const Barriers barriers{1, 0, 0, 10};
  LeasePool pool(barriers, not_followed(), 2, 8, 2, key_of_run());
  pool.grant(kAnna);
  pool.finish_training(kAnna, 0, {0, 4});
  pool.finish_training(kAnna, 0, {4, 8});
  pool.open_barrier(1);
  pool.grant(kAnna);  // both evaluations
  pool.lose(kAnna);
  const auto first = pool.grant(kBert);
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(work_of(first[0]), (Work{0, 4, 8}));
  EXPECT_TRUE(first[1].evaluate());
}

TEST(LeasePool, WorkerWithLeasesBehindABarrierOnlyGetsOneReturnedLeaseMore) {
  const Barriers barriers{1, 0, 0, 10};
  LeasePool pool(barriers, not_followed(), 2, 8, 2, key_of_run());
  pool.grant(kAnna);
  pool.finish_training(kAnna, 0, {4, 8});
  pool.grant(kBert);
  EXPECT_TRUE(pool.held(kBert).empty()) << "the barrier is closed";
  pool.finish_training(kAnna, 0, {0, 4});
  pool.open_barrier(1);
  pool.relieve(kBert);
  EXPECT_TRUE(pool.held(kBert).empty()) << "a worker without a lease asks for one";
  EXPECT_EQ(pool.grant(kBert).size(), 2U);
  EXPECT_TRUE(pool.held(kBert)[0].evaluate());
  pool.lose(kAnna);
  pool.relieve(kBert);
  const auto held = pool.grant(kBert);
  ASSERT_EQ(held.size(), 3U);
  EXPECT_EQ(work_of(held[2]), (Work{0, 0, 4}));
  EXPECT_EQ(held[2].number(), 3);
  EXPECT_TRUE(taken(key_of_run().check(held[2].grant(), kBert, {0, 4}, {0, 1})));
  pool.finish_training(kBert, 0, {0, 4});
  EXPECT_EQ(pool.grant(kBert).size(), 2U);
}

// Workers join, finish and die in random order. Each share of each step is computed, and twice only
// after a death.
TEST(LeasePool, EachShareIsComputedDespiteDeaths) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    const Barriers barriers{4, 0, 0, 12};
    LeasePool pool(barriers, not_followed(), 3, 8, 5, key_of_run());
    std::map<Work, int> trained;
    std::set<Work> evaluated;
    std::set<int64_t> opened;
    uint64_t deaths = 0;
    for (int turn = 0; turn < 2000 && !(trained.size() == 36 && evaluated.size() == 9); ++turn) {
      const uint64_t worker = 1 + random() % 4 + 100 * deaths;
      const auto leases = pool.grant(worker);
      if (random() % 12 == 0) {
        for (uint64_t w = 1; w <= 4; ++w) pool.lose(w + 100 * deaths);
        ++deaths;
        continue;
      }
      if (leases.empty()) continue;
      const wire::Lease& lease = leases[0];
      if (lease.evaluate()) {
        evaluated.insert(work_of(lease));
        pool.finish_evaluation(worker, lease.step(), lease.lo());
        continue;
      }
      ++trained[work_of(lease)];
      pool.finish_training(worker, lease.step(), {lease.lo(), lease.hi()});
      for (int64_t barrier : {4, 8, 12}) {
        const bool due = std::count_if(trained.begin(), trained.end(), [&](const auto& t) {
                           return std::get<0>(t.first) < barrier;
                         }) == 3 * barrier;
        if (due && opened.insert(barrier).second) pool.open_barrier(barrier);
      }
    }
    EXPECT_EQ(trained.size(), 36U) << "seed " << seed;
    EXPECT_EQ(evaluated.size(), 9U) << "seed " << seed;
  }
}

TEST(LeasePool, LeasesAfterAChosenCheckpointWaitForItAndForAllToKnow) {
  Barriers barriers{0, 0, 0, 10};
  LeasePool pool(barriers, not_followed(), 2, 8, 0, key_of_run());
  EXPECT_EQ(pool.undrawn(), 0);
  pool.grant(kAnna);
  pool.finish_training(kAnna, 0, {0, 4});
  pool.grant(kAnna);
  EXPECT_EQ(pool.undrawn(), 2) << "a share of step 1 is drawn";
  barriers.choose(2);
  barriers.held_step = 2;
  pool.finish_training(kAnna, 0, {4, 8});
  EXPECT_EQ(work_of(pool.grant(kAnna).back()), (Work{1, 4, 8}));
  pool.finish_training(kAnna, 1, {0, 4});
  pool.finish_training(kAnna, 1, {4, 8});
  EXPECT_TRUE(pool.grant(kAnna).empty()) << "the barrier is closed";
  pool.open_barrier(2);
  EXPECT_TRUE(pool.grant(kAnna).empty()) << "not all members know it";
  barriers.held_step = 0;
  EXPECT_EQ(pool.grant(kAnna).size(), 2U);
}

}  // namespace

}  // namespace pushpull

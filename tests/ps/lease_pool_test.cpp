#include "ps/work/lease_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "tests/ps/refusals.h"

namespace pushpull {
namespace {

constexpr uint64_t kAnna = 1;
constexpr uint64_t kBert = 2;
const Grants& key_of_run() {
  static const Grants one("a key of this run");
  return one;
}

using Work = std::tuple<int64_t, int32_t, int32_t>;  // step, lo, hi

Work work_of(const wire::Lease& lease) { return {lease.step(), lease.lo(), lease.hi()}; }

TEST(LeasePool, GrantsTwoLeasesInOrderAndRepeatsThemUntilTheyAreDone) {
  LeasePool pool({0, 0, 0, 10}, 2, 8, 0, key_of_run());
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
  LeasePool pool({0, 0, 0, 10}, 2, 8, 0, key_of_run());
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
  Barriers barriers{2, 0, 0, 10};
  barriers.awaits_evaluations = true;
  LeasePool pool(barriers, 1, 8, 0, key_of_run());
  EXPECT_EQ(pool.grant(kAnna).size(), 2U);
  for (const int64_t step : {0, 1}) pool.finish_training(kAnna, step, {0, 8});
  pool.open_barrier(2);
  EXPECT_TRUE(pool.grant(kAnna).empty());
  pool.evaluated(2);
  EXPECT_EQ(work_of(pool.grant(kAnna).at(0)), (Work{2, 0, 8}));
}

TEST(LeasePool, StepsAfterABarrierWaitUntilItIsOpen) {
  LeasePool pool({3, 0, 0, 6}, 1, 8, 4, key_of_run());
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
  LeasePool pool({0, 2, 0, 4}, 1, 8, 4, key_of_run());
  pool.grant(kAnna);
  pool.finish_training(kAnna, 0, {0, 8});
  pool.finish_training(kAnna, 1, {0, 8});
  pool.open_barrier(2);
  EXPECT_FALSE(pool.grant(kAnna)[0].evaluate());
}

TEST(LeasePool, EvaluationLeaseIsDoneWithAnyOfItsChunks) {
  LeasePool pool({0, 0, 0, 1}, 2, 8, 6, key_of_run());
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
  LeasePool pool({0, 0, 0, 1}, 4, 8, 2, key_of_run());
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
  LeasePool pool({0, 0, 0, 10}, 1, 8, 0, key_of_run());
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
  LeasePool pool({1, 0, 0, 10}, 2, 8, 2, key_of_run());
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
  LeasePool pool({1, 0, 0, 10}, 2, 8, 2, key_of_run());
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
    LeasePool pool(barriers, 3, 8, 5, key_of_run());
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
  LeasePool pool({0, 0, 0, 10}, 2, 8, 0, key_of_run());
  EXPECT_EQ(pool.undrawn(), 0);
  pool.grant(kAnna);
  pool.finish_training(kAnna, 0, {0, 4});
  pool.grant(kAnna);
  EXPECT_EQ(pool.undrawn(), 2) << "a share of step 1 is drawn";
  pool.choose(2, true);
  pool.finish_training(kAnna, 0, {4, 8});
  EXPECT_EQ(work_of(pool.grant(kAnna).back()), (Work{1, 4, 8}));
  pool.finish_training(kAnna, 1, {0, 4});
  pool.finish_training(kAnna, 1, {4, 8});
  EXPECT_TRUE(pool.grant(kAnna).empty()) << "the barrier is closed";
  pool.open_barrier(2);
  EXPECT_TRUE(pool.grant(kAnna).empty()) << "not all members know it";
  pool.choose(2, false);
  EXPECT_EQ(pool.grant(kAnna).size(), 2U);
}

}  // namespace
}  // namespace pushpull

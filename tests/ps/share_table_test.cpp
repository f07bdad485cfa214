#include "ps/members/share_table.h"

#include <gtest/gtest.h>

namespace pushpull::share_table_test {
namespace {

constexpr uint64_t kAnna = 101;
constexpr uint64_t kBert = 102;

MemberInfo worker(uint64_t incarnation, int rank) {
  return {.role = wire::ROLE_WORKER, .rank = rank, .incarnation = incarnation};
}

TEST(ShareTable, SharesCoverTheStep) {
  const ShareTable table(3, 8, {5, 100});
  ASSERT_EQ(table.all().size(), 3U);
  EXPECT_EQ(table.all().front().range.lo, 0);
  EXPECT_EQ(table.all().back().range.hi, 8);
  for (const ShareOwner& share : table.all()) EXPECT_EQ(share.from_step, 5);
  EXPECT_EQ(table.owned(), 0);
}

TEST(ShareTable, VacantShareRestartsAStepBeforeServerZerosClock) {
  ShareTable table(2, 4, {0, 100});
  table.give(0, kAnna);
  table.give(1, kBert);
  table.advance({2, 4}, 7);
  table.advance({0, 3}, 9);  // not a share
  EXPECT_TRUE(table.vacate(kBert, 1000));
  EXPECT_FALSE(table.vacate(kBert, 2000)) << "it no longer has a share";
  EXPECT_EQ(table.all()[1].owner, 0U);
  EXPECT_EQ(table.all()[1].from_step, 6) << "the last push may not have reached all servers";
  EXPECT_EQ(table.all()[1].vacant_since_ms, 1000);
  EXPECT_EQ(table.owned(), 1);
  table.give(1, kAnna);
  EXPECT_EQ(table.all()[1].vacant_since_ms, -1);
}

TEST(ShareTable, NoShareStartsBeforeTheRun) {
  ShareTable table(1, 4, {5, 100});
  table.give(0, kAnna);
  table.vacate(kAnna, 0);
  EXPECT_EQ(table.all()[0].from_step, 5);
}

TEST(ShareTable, LeastLoadedIsAWorkerWithARank) {
  Membership members(10);
  members.add(worker(kAnna, 0));
  members.add(worker(kBert, 1));
  members.add(worker(103, -1));
  members.add({.role = wire::ROLE_SERVER, .rank = 0, .incarnation = 1});
  ShareTable table(3, 6, {0, 100});
  table.give(0, kAnna);
  EXPECT_EQ(table.least_loaded(WorkGroups(1, members), {0, 100}, 1), kBert);
  table.give(1, kBert);
  EXPECT_EQ(table.least_loaded(WorkGroups(1, members), {0, 100}, 1), 0U) << "no worker is idle";
  table.give(2, kAnna);
  EXPECT_EQ(table.least_loaded(WorkGroups(1, members), {0, 100}, INT64_MAX), kBert);
}

TEST(ShareTable, WorkerWithTwoSharesMoreThanAnotherGivesOne) {
  Membership members(10);
  members.add(worker(kAnna, 0));
  ShareTable table(3, 6, {0, 100});
  EXPECT_EQ(table.surplus(WorkGroups(1, members)), std::nullopt) << "no share has an owner";
  for (size_t i = 0; i < 3; ++i) table.give(i, kAnna);
  EXPECT_EQ(table.surplus(WorkGroups(1, members)), std::nullopt) << "there is no other worker";
  members.add(worker(103, -1));
  EXPECT_EQ(table.surplus(WorkGroups(1, members)), std::nullopt) << "a spare takes no share";
  members.add(worker(kBert, 1));
  ASSERT_TRUE(table.surplus(WorkGroups(1, members)));
  table.advance({0, 2}, 9);
  table.release(0);
  EXPECT_EQ(table.all()[0].from_step, 8) << "the last push may not have reached all servers";
  EXPECT_TRUE(table.all()[0].earlier.contains(kAnna));
  table.give(0, kBert);
  EXPECT_EQ(table.surplus(WorkGroups(1, members)), std::nullopt) << "two shares and one";
  table.vacate(kAnna, 0);
  EXPECT_FALSE(table.all()[0].earlier.contains(kAnna)) << "a lost worker reports no more";
}

TEST(ShareTable, StepsMayBeSplitIntoMoreSharesFromAStepOn) {
  ShareTable table(2, 4, {0, 100});
  table.give(0, kAnna);
  table.give(1, kBert);
  EXPECT_FALSE(table.in_transition());
  table.cut(4, 10);
  EXPECT_TRUE(table.in_transition());
  EXPECT_EQ(table.shares(), 4);
  ASSERT_EQ(table.all().size(), 6U);
  EXPECT_EQ(table.all()[1].steps, (Range{0, 10}));
  EXPECT_EQ(table.all()[2].steps, (Range{10, 100}));
  EXPECT_EQ(table.all()[2].from_step, 10);
  EXPECT_EQ(table.all()[5].range, (Range{3, 4}));
  for (size_t i = 2; i < 6; ++i) table.give(i, 103);
  table.advance({0, 2}, 10);
  EXPECT_EQ(table.all()[0].clock, 10);
  table.advance({3, 4}, 10);
  EXPECT_EQ(table.all()[5].clock, 10) << "it has no step";
  table.advance({3, 4}, 11);
  EXPECT_EQ(table.all()[5].clock, 11);
  table.retire(9);
  EXPECT_TRUE(table.in_transition());
  table.retire(10);
  EXPECT_FALSE(table.in_transition());
  EXPECT_EQ(table.all().size(), 4U);
}

TEST(ShareTable, BarrierIsEvaluatedByTheOwnersOfTheNextStep) {
  ShareTable table(1, 4, {0, 100});
  table.give(0, kAnna);
  table.cut(2, 10);
  table.give(1, kAnna);
  table.give(2, kBert);
  EXPECT_TRUE(table.may_evaluate(kAnna, 9, 7, 8));
  EXPECT_FALSE(table.may_evaluate(kBert, 9, 7, 8));
  EXPECT_TRUE(table.may_evaluate(kBert, 10, 7, 8));
  EXPECT_FALSE(table.may_evaluate(kAnna, 10, 7, 8));
  EXPECT_TRUE(table.may_evaluate(kBert, 100, 7, 8)) << "the end of the run";
  EXPECT_FALSE(table.may_evaluate(kBert, 100, 8, 8)) << "no such chunk";
  table.retire(10);
  EXPECT_TRUE(table.may_evaluate(kAnna, 9, 7, 8)) << "its result may be late";
  EXPECT_FALSE(table.may_evaluate(kBert, 9, 7, 8));
}

TEST(ShareTable, OwnersEvaluateTheirChunksOfARunAtItsEnd) {
  ShareTable table(2, 4, {100, 100});
  table.give(0, kAnna);
  table.give(1, kBert);
  EXPECT_TRUE(table.may_evaluate(kAnna, 100, 0, 8));
  EXPECT_FALSE(table.may_evaluate(kAnna, 100, 7, 8));
  EXPECT_TRUE(table.may_evaluate(kBert, 100, 7, 8));
  EXPECT_FALSE(table.may_evaluate(kBert, 99, 7, 8)) << "before the run";
}

TEST(ShareTable, EvaluatorGetsTheShareWithoutItsMicroBatches) {
  ShareTable table(2, 4, {0, 100});
  table.give(0, kAnna);
  table.at(1).evaluator = kAnna;
  wire::State state;
  table.add_assigned(&state, kAnna);
  ASSERT_EQ(state.assigned_size(), 2);
  EXPECT_EQ(state.assigned(0).hi(), 2);
  EXPECT_EQ(state.assigned(1).index(), 1);
  EXPECT_EQ(state.assigned(1).hi(), 0);
  EXPECT_FALSE(table.vacate(kBert, 0));
  table.vacate(kAnna, 0);
  EXPECT_EQ(table.all()[1].evaluator, 0U) << "the share has no evaluator any more";
}

}  // namespace
}  // namespace pushpull::share_table_test

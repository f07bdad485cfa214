#include "ps/work/share_table.h"

#include <gtest/gtest.h>

namespace pushpull::share_table_test {
namespace {

constexpr uint64_t kAnna = 101;
constexpr uint64_t kBert = 102;

MemberInfo worker(uint64_t incarnation, int rank) {
  return {.role = wire::ROLE_WORKER, .rank = rank, .incarnation = incarnation};
}

TEST(ShareTable, SharesCoverTheStep) {
  const ShareTable table(3, 8, 5);
  ASSERT_EQ(table.all().size(), 3U);
  EXPECT_EQ(table.all().front().range.lo, 0);
  EXPECT_EQ(table.all().back().range.hi, 8);
  for (const ShareOwner& share : table.all()) EXPECT_EQ(share.from_step, 5);
  EXPECT_EQ(table.owned(), 0);
}

TEST(ShareTable, AVacantShareGoesOnOneStepBeforeWhatServer0Has) {
  ShareTable table(2, 4, 0);
  table.give(0, kAnna);
  table.give(1, kBert);
  table.advance({2, 4}, 7);
  table.advance({0, 3}, 9);  // no share
  EXPECT_TRUE(table.vacate(kBert, 1000));
  EXPECT_FALSE(table.vacate(kBert, 2000)) << "it has none any longer";
  EXPECT_EQ(table.all()[1].owner, 0U);
  EXPECT_EQ(table.all()[1].from_step, 6) << "its last push may not have reached every server";
  EXPECT_EQ(table.all()[1].vacant_since_ms, 1000);
  EXPECT_EQ(table.owned(), 1);
  table.give(1, kAnna);
  EXPECT_EQ(table.all()[1].vacant_since_ms, -1);
}

TEST(ShareTable, NoShareBeginsBeforeTheStart) {
  ShareTable table(1, 4, 5);
  table.give(0, kAnna);
  table.vacate(kAnna, 0);
  EXPECT_EQ(table.all()[0].from_step, 5);
}

TEST(ShareTable, TheLeastLoadedIsAWorkerWithARank) {
  Membership members(10);
  members.add(worker(kAnna, 0));
  members.add(worker(kBert, 1));
  members.add(worker(103, -1));
  members.add({.role = wire::ROLE_SERVER, .rank = 0, .incarnation = 1});
  ShareTable table(3, 6, 0);
  table.give(0, kAnna);
  EXPECT_EQ(table.least_loaded(members, 1), kBert);
  table.give(1, kBert);
  EXPECT_EQ(table.least_loaded(members, 1), 0U) << "nobody is idle";
  table.give(2, kAnna);
  EXPECT_EQ(table.least_loaded(members, INT64_MAX), kBert);
}

TEST(ShareTable, AnEvaluatorIsToldOfTheShareWithoutItsMicroBatches) {
  ShareTable table(2, 4, 0);
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
  EXPECT_EQ(table.all()[1].evaluator, 0U) << "it evaluates nothing any longer";
}

}  // namespace
}  // namespace pushpull::share_table_test

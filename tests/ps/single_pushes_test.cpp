#include "ps/aggregation/single_pushes.h"

#include <gtest/gtest.h>

#include "tests/ps/refusals.h"
#include "tests/ps/rule_fixture.h"

namespace pushpull {
namespace {

TEST(NeededFloor, IsTheClockMinusTheBoundUnderSsp) {
  const Barriers none{0, 0, 0, 100};
  EXPECT_EQ(needed_floor(3, none, 7), 4);
  EXPECT_EQ(needed_floor(3, none, 2), 0) << "never below the start";
  EXPECT_EQ(needed_floor(1000000, none, 50), 0);
}

TEST(NeededFloor, IsTheLastBarrierUnderAsync) {
  const Barriers every_ten{10, 0, 0, 100};
  EXPECT_EQ(needed_floor(std::nullopt, every_ten, 9), 0);
  EXPECT_EQ(needed_floor(std::nullopt, every_ten, 10), 10);
  EXPECT_EQ(needed_floor(std::nullopt, every_ten, 29), 20);
  EXPECT_EQ(needed_floor(5, every_ten, 22), 20);
  EXPECT_EQ(needed_floor(5, every_ten, 29), 24);
}

class SinglePushesTest : public RuleTest {};

TEST_F(SinglePushesTest, EachPushIsAnUpdateInOrderOfArrival) {
  make("strategy = async\n");
  give(kAnna, 0, {2, 4});
  give(kBert, 0, {0, 2});
  EXPECT_EQ(rule_->updates(), 0);
  EXPECT_GT(rule_->due_bytes(), 0);
  rule_->apply_due();
  EXPECT_EQ(rule_->due_bytes(), 0);
  EXPECT_EQ(rule_->updates(), 2);
  EXPECT_EQ(rule_->floor(), 1);
  EXPECT_EQ(rule_->staleness(), (std::map<int64_t, int64_t>{{0, 1}, {1, 1}}));
  ASSERT_EQ(observer_.commits.size(), 2U);
  EXPECT_EQ(observer_.commits[0].incarnation, kAnna);
}

TEST_F(SinglePushesTest, CommittedMicroBatchesAreNotAppliedAgain) {
  make("strategy = async\n");
  give(kAnna, 0, {0, 2});
  give(kBert, 0, {0, 2});
  rule_->apply_due();
  EXPECT_EQ(rule_->updates(), 1);
  ASSERT_EQ(observer_.commits.size(), 2U);
  EXPECT_TRUE(observer_.commits[0].counted);
  EXPECT_FALSE(observer_.commits[1].counted);
}

TEST_F(SinglePushesTest, PullWaitsForTheSlowestWorkerUnderSsp) {
  make("strategy = ssp:1\n");
  give(kAnna, 0, {0, 2});
  give(kAnna, 1, {0, 2});
  rule_->apply_due();
  EXPECT_EQ(version(1), 2);
  EXPECT_EQ(version(2), std::nullopt) << "step 0 lacks a share";
  give(kBert, 0, {2, 4});
  rule_->apply_due();
  EXPECT_EQ(version(2), 3);
}

TEST_F(SinglePushesTest, BarrierOpensWhenItsStepsAreInAndKeepsItsWeights) {
  make("strategy = async\neval-every = 1\n");
  give(kAnna, 0, {0, 2});
  rule_->apply_due();
  EXPECT_EQ(version(1), std::nullopt);
  give(kBert, 0, {2, 4});
  EXPECT_TRUE(rule_->apply_due());
  EXPECT_EQ(observer_.barriers, std::vector<int64_t>{1});
  give(kAnna, 1, {0, 2});
  rule_->apply_due();
  wire::Pull pull;
  pull.set_clock(1);
  pull.set_barrier(true);
  const auto answer = rule_->answer(pull, 0);
  ASSERT_TRUE(answer);
  EXPECT_TRUE(answer->at_barrier);
  EXPECT_EQ(answer->version, 2) << "not the newest version, 3";
}

TEST_F(SinglePushesTest, ImpossibleReadVersionIsRefusedWithBothNumbers) {
  make("strategy = async\n");
  wire::Push push;
  push.add_read_versions(1);
  const Checked refusal = rule_->check(push);
  EXPECT_EQ(reason_of(refusal), "push-reads");
  EXPECT_EQ(line_of(refusal),
            "[push-reads] expected a version that this server has had, 0 to 0, got 1");
}

}  // namespace
}  // namespace pushpull

#include "cli/eval_follow.h"

#include <gtest/gtest.h>

namespace pushpull::eval_follow_test {
namespace {

using Do = EvalFollow::Do;
using Sight = EvalFollow::Sight;

Sight running(std::map<int64_t, std::string> checkpoints) {
  return {std::move(checkpoints), true, false};
}

TEST(EvalFollow, EvaluatesEachCheckpointOnceInOrder) {
  EvalFollow follow(1000, 0);
  const Sight sight = running({{10, "a"}, {20, "b"}});
  EXPECT_EQ(follow.next(sight, 0).path, "a");
  follow.done(10, 1);
  EXPECT_EQ(follow.next(sight, 1).step, 20);
  follow.done(20, 2);
  EXPECT_EQ(follow.next(sight, 2).what, Do::kWait);
  EXPECT_EQ(follow.next(running({{20, "b"}, {30, "c"}}), 3).step, 30);
}

TEST(EvalFollow, EndsAfterTheLastCheckpointOfARunThatHasEnded) {
  EvalFollow follow(1000, 0);
  EXPECT_EQ(follow.next(running({}), 0).what, Do::kWait);
  const Sight ended{{{10, "a"}}, false, true};
  EXPECT_EQ(follow.next(ended, 1).what, Do::kEvaluate);
  follow.done(10, 2);
  EXPECT_EQ(follow.next(ended, 2).what, Do::kEnd);
  EvalFollow late(1000, 0);
  EXPECT_EQ(late.next({{}, false, true}, 0).what, Do::kEnd) << "it had ended before";
}

TEST(EvalFollow, EndsWhenARunThatItHasSeenLeavesNoSummary) {
  EvalFollow follow(1000, 0);
  follow.next(running({}), 0);
  EXPECT_EQ(follow.next({{}, false, false}, 1).what, Do::kEnd) << "the run has failed";
}

TEST(EvalFollow, WaitsForARunThatHasNotBegunUntilItsDeadline) {
  EvalFollow follow(1000, 0);
  EXPECT_EQ(follow.next({}, 999).what, Do::kWait);
  EXPECT_EQ(follow.next({}, 1000).what, Do::kGiveUp);
  EXPECT_FALSE(follow.saw_run());
}

TEST(EvalFollow, EachCheckpointRestartsTheDeadline) {
  EvalFollow follow(1000, 0);
  follow.done(10, 900);
  EXPECT_EQ(follow.next(running({{10, "a"}}), 1800).what, Do::kWait);
  EXPECT_EQ(follow.next(running({{10, "a"}}), 1900).what, Do::kGiveUp);
}

TEST(EvalFollow, AnotherRunInTheFolderBeginsAgain) {
  EvalFollow follow(1000, 0);
  follow.done(500, 1);
  EXPECT_EQ(follow.next(running({{10, "a"}}), 2).step, 10);
}

}  // namespace
}  // namespace pushpull::eval_follow_test

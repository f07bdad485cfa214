// Tests PullRepeats: the time of repeated pulls, silence, and lost pushes.
#include <gtest/gtest.h>

#include <climits>

#include "tests/worker/exchange_parts.h"
#include "worker/exchange/pull_pace.h"

namespace pushpull {
namespace {

class Repeats : public testing::Test {
 protected:
  void repeat(int64_t now_ms) {
    repeats_.overdue(0);
    repeats_.ask_again(0, now_ms);
  }

  PullRepeats repeats_{ConnectionMap(three_slices(), 2), 5000};
};

TEST_F(Repeats, PullIsRepeatedASecondAfterTheLastPartOfItsAnswer) {
  repeats_.begin(0);
  repeats_.ask(0, 1000);
  EXPECT_FALSE(repeats_.due(0, 1999));
  EXPECT_TRUE(repeats_.due(0, 2000));
  repeats_.wait(0, 1800);
  EXPECT_FALSE(repeats_.due(0, 2799));
  EXPECT_TRUE(repeats_.due(0, 2800));
}

TEST_F(Repeats, ServerIsSilentAfterTheTimeoutAndThreeUnansweredQuestions) {
  repeats_.begin(0);
  repeats_.ask(0, 0);
  EXPECT_FALSE(repeats_.silent_ms(0, 3'600'000)) << "the worker itself may have been stopped";
  for (const int64_t now : {1000, 2000, 3000}) repeat(now);
  EXPECT_FALSE(repeats_.silent_ms(0, 5000));
  EXPECT_EQ(repeats_.silent_ms(0, 5001), 5001);
  EXPECT_TRUE(repeats_.hear(0, 5001)) << "the pull was repeated";
  EXPECT_FALSE(repeats_.hear(0, 5002));
  EXPECT_FALSE(repeats_.silent_ms(0, 20'000));
}

TEST_F(Repeats, ServerThatIsNotReadyIsAskedEvery20MsAndIsNotSilent) {
  repeats_.begin(0);
  repeats_.ask(0, 0);
  for (int64_t now = 0; now < 20'000; now += 20) {
    repeats_.not_ready(0, now);
    EXPECT_FALSE(repeats_.due(0, now + 19));
    ASSERT_TRUE(repeats_.due(0, now + 20));
    repeat(now + 20);
  }
  EXPECT_FALSE(repeats_.silent_ms(0, 20'000));
}

TEST_F(Repeats, PushIsLostOnceEveryConnectionHasAnsweredALaterQuestion) {
  repeats_.begin(0);
  repeats_.ask(0, 0);
  EXPECT_FALSE(repeats_.answered_since_push(0, 2)) << "no repetition since the push";
  repeat(1000);
  repeats_.answer(0, 0, 1);
  EXPECT_FALSE(repeats_.answered_since_push(0, 2))
      << "the rest may be in flight on the other connection";
  repeats_.answer(0, 1, 1);
  EXPECT_TRUE(repeats_.answered_since_push(0, 2));
  repeats_.push_again(0);
  EXPECT_FALSE(repeats_.answered_since_push(0, 2));
  repeat(2000);
  repeats_.answer(0, 0, 2);
  repeats_.answer(0, 0, 1);  // late
  EXPECT_EQ(repeats_.answered(0, 0), 2);
  EXPECT_TRUE(repeats_.answered_since_push(0, 1));
}

TEST_F(Repeats, AnswerOnAnUnknownConnectionIsIgnored) {
  repeats_.begin(0);
  for (const int connection : {-1, 2, INT_MAX, INT_MIN}) repeats_.answer(0, connection, 9);
  EXPECT_EQ(repeats_.answered(0, 0), 0);
  EXPECT_EQ(repeats_.answered(0, 1), 0);
}

}  // namespace
}  // namespace pushpull

#include <gtest/gtest.h>

#include <string>

#include "ps/status/status_desk.h"

namespace pushpull {
namespace {

TEST(AnswerLimits, OneConnectionGetsFiveAnswersASecond) {
  AnswerLimits limits;
  int answers = 0;
  for (int64_t ms = 0; ms < 1000; ++ms) answers += limits.take(5000 + ms, "anna") ? 1 : 0;
  EXPECT_EQ(answers, 5);
  EXPECT_TRUE(limits.take(5000, "bert"));
}

TEST(AnswerLimits, ConnectionThatNeverReadsHasABoundedCost) {
  AnswerLimits limits;
  int64_t answers = 0;
  for (int64_t ms = 0; ms < 600'000; ms += 100) answers += limits.take(ms, "anna") ? 1 : 0;
  EXPECT_EQ(answers, AnswerLimits::kMaxOfConnection);
}

TEST(AnswerLimits, ConnectionsShareTheTotal) {
  AnswerLimits limits;
  int64_t answers = 0;
  for (int i = 0; i < 10'000; ++i) {
    answers += limits.take(10'000 + i / 10, "peer " + std::to_string(i)) ? 1 : 0;
  }
  EXPECT_EQ(answers, AnswerLimits::kMaxPerSecond);
  EXPECT_TRUE(limits.take(12'000, "anna")) << "a new second";
}

TEST(AnswerLimits, RemembersABoundedNumberOfConnections) {
  AnswerLimits limits;
  EXPECT_TRUE(limits.take(0, "first"));
  int64_t ms = 1000;
  for (size_t i = 0; i < AnswerLimits::kMaxConnections; ++i, ms += 25) {
    EXPECT_TRUE(limits.take(ms, std::to_string(i)));
  }
  EXPECT_FALSE(limits.take(ms, std::to_string(AnswerLimits::kMaxConnections - 1)));
}

}  // namespace
}  // namespace pushpull

#include <gtest/gtest.h>

#include "common/net/intervals.h"

namespace pushpull {
namespace {

TEST(Repeat, IsDueAtOnceAndThenOncePerInterval) {
  Repeat repeat(100);
  EXPECT_TRUE(repeat.due(5));
  EXPECT_FALSE(repeat.due(5));
  EXPECT_FALSE(repeat.due(104));
  EXPECT_TRUE(repeat.due(105));
  EXPECT_TRUE(repeat.due(1000)) << "however late the call";
  EXPECT_FALSE(repeat.due(1099));
}

TEST(Repeat, CanBeMadeDueSoonerOrLater) {
  Repeat repeat(100);
  repeat.restart(0);
  EXPECT_FALSE(repeat.due(99));
  repeat.expire();
  EXPECT_TRUE(repeat.due(99));
  EXPECT_FALSE(repeat.due(198));
}

TEST(Repeat, ANewValueIsDueAtOnce) {
  RepeatOf<int> repeat(100);
  EXPECT_TRUE(repeat.due(7, 0));
  EXPECT_FALSE(repeat.due(7, 50));
  EXPECT_TRUE(repeat.due(8, 50));
  EXPECT_FALSE(repeat.due(8, 100));
  EXPECT_TRUE(repeat.due(8, 150));
}

}  // namespace
}  // namespace pushpull

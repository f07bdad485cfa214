#include <gtest/gtest.h>

#include "ps/server/push_intake.h"

namespace pushpull {
namespace {

TEST(PushTracker, AcknowledgesOnlyPushesWithoutAGap) {
  PushTracker pushes;
  EXPECT_EQ(pushes.through(), 0);
  EXPECT_FALSE(pushes.complete(1));
  pushes.mark(2);
  EXPECT_TRUE(pushes.complete(2));
  EXPECT_EQ(pushes.through(), 0);
  pushes.mark(1);
  EXPECT_EQ(pushes.through(), 2);
  pushes.mark(4);
  pushes.mark(5);
  pushes.mark(4);
  EXPECT_EQ(pushes.through(), 2);
  pushes.mark(3);
  EXPECT_EQ(pushes.through(), 5);
  EXPECT_TRUE(pushes.complete(5));
  EXPECT_FALSE(pushes.complete(6));
}

TEST(PushTracker, MayStartLater) {
  PushTracker pushes;
  pushes.mark(7);
  pushes.begin_at(6);
  EXPECT_EQ(pushes.through(), 5);
  EXPECT_TRUE(pushes.complete(3));
  pushes.mark(6);
  EXPECT_EQ(pushes.through(), 7);
  pushes.begin_at(2);
  EXPECT_EQ(pushes.through(), 7) << "known pushes stay";
  pushes.mark(10);
  pushes.begin_at(10);
  EXPECT_EQ(pushes.through(), 10);
}

}  // namespace
}  // namespace pushpull

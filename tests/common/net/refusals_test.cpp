#include "common/net/refusals.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

const Refusal kShare = *refused("push-share", "a share", "none");
const Refusal kClock = *refused("pull-clock", 3, 4);

TEST(Refusal, SaysTheExpectedAndTheReceivedValue) {
  EXPECT_STREQ(kClock.reason, "pull-clock");
  EXPECT_EQ(kClock.line(), "[pull-clock] expected 3, got 4");
  EXPECT_FALSE(kClock.from_member) << "strangers get no answer";
}

TEST(Refusal, ARefusalFromAMemberNamesIt) {
  const Checked refusal = from_member(refused("pull-clock", 3, 4), "worker 1");
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->line(), "[pull-clock] expected 3, got 4 from worker 1");
  EXPECT_TRUE(refusal->from_member);
  EXPECT_FALSE(from_member(std::nullopt, "worker 1")) << "without a refusal";
}

TEST(Refusals, AreCountedByReason) {
  Refusals refusals;
  refusals.add("anna", kShare, 0);
  refusals.add("bert", kShare, 0);
  refusals.add("anna", kClock, 0);
  EXPECT_EQ(refusals.counts(),
            (std::map<std::string, int64_t>{{"pull-clock", 1}, {"push-share", 2}}));
  EXPECT_EQ(refusals.total(), 3);
}

TEST(Refusals, TheFirstOfEachPeerAndReasonIsReported) {
  Refusals refusals;
  EXPECT_TRUE(refusals.add("anna", kShare, 0));
  EXPECT_FALSE(refusals.add("anna", kShare, 1));
  EXPECT_TRUE(refusals.add("anna", kClock, 1));
  EXPECT_TRUE(refusals.add("bert", kShare, 1));
  EXPECT_FALSE(refusals.add("anna", kShare, 100 * Refusals::kWindowMs));
}

TEST(Refusals, AFloodOfStrangersIsReportedAFewTimesInEachWindow) {
  Refusals refusals;
  int reported = 0;
  for (int i = 0; i < 50'000; ++i) {
    reported += refusals.add("stranger " + std::to_string(i), kShare, i) ? 1 : 0;
  }
  EXPECT_EQ(reported, 5 * Refusals::kMaxReports) << "five windows of 10 s";
  EXPECT_EQ(refusals.counts().at("push-share"), 50'000);
}

TEST(Refusals, UnreadableFramesHaveTheirOwnReason) {
  Refusals refusals;
  refusals.add("anna", kShare, 0);
  wire::Stats stats;
  refusals.report(3, stats);
  EXPECT_EQ(stats.rejected_frames(), 3);
  ASSERT_EQ(stats.refusals_size(), 2);
  EXPECT_EQ(stats.refusals(0).reason(), "push-share");
  EXPECT_EQ(stats.refusals(0).count(), 1);
  EXPECT_EQ(stats.refusals(1).reason(), "frame");
  EXPECT_EQ(stats.refusals(1).count(), 2);
}

}  // namespace
}  // namespace pushpull

#include "ps/server/backup_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ps/cluster_parts.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

ReceivedPush push_of(uint64_t who, Range range, float value = 1.0F) {
  ReceivedPush push;
  push.incarnation = who;
  push.range = range;
  push.losses = {value};
  for (const int slice : {0, 2}) push.parts[slice] = {range, constant_payload(4, value)};
  return push;
}

TEST(BackupSet, TakesOnePushOfEachShare) {
  BackupSet set;
  EXPECT_TRUE(set.add(push_of(kAnna, {2, 5})));
  EXPECT_TRUE(set.add(push_of(kBert, {0, 2})));
  EXPECT_FALSE(set.add(push_of(kBert, {2, 5}))) << "a second push of the same share";
  EXPECT_THAT(set.complete(), ElementsAre(0, 2));
  EXPECT_FALSE(set.decided());
}

TEST(BackupSet, ChosenPushesAreLeavesInShareOrder) {
  BackupSet set;
  set.add(push_of(kAnna, {5, 8}, 3.0F));
  set.add(push_of(kBert, {0, 2}, 1.0F));
  set.add(push_of(7, {2, 5}, 2.0F));
  ASSERT_TRUE(set.choose({5, 0}));
  EXPECT_TRUE(set.decided());
  EXPECT_EQ(set.pushes(), 2);
  EXPECT_EQ(set.micro_batches(), 5);
  for (const int slice : {0, 2}) {
    ASSERT_EQ(set.parts(slice).size(), 2U);
    EXPECT_EQ(set.parts(slice)[0].range, (Range{0, 1}));
    EXPECT_EQ(set.parts(slice)[0].payload.floats()[0], 1.0F);
    EXPECT_EQ(set.parts(slice)[1].range, (Range{1, 2}));
    EXPECT_EQ(set.parts(slice)[1].payload.floats()[3], 3.0F);
  }
  const BackupSet::Done done = set.take();
  ASSERT_EQ(done.counted.size(), 2U);
  EXPECT_EQ(done.counted[0].incarnation, kBert);
  EXPECT_EQ(done.counted[1].range, (Range{5, 8}));
  ASSERT_EQ(done.dropped.size(), 1U);
  EXPECT_EQ(done.dropped[0].incarnation, 7U);
}

TEST(BackupSet, SetIsFixedOnceAndHoldsOnlyPresentShares) {
  BackupSet set;
  set.add(push_of(kAnna, {0, 2}));
  set.add(push_of(kBert, {2, 4}));
  EXPECT_FALSE(set.choose({}));
  EXPECT_FALSE(set.choose({0, 4})) << "no worker pushed share 4";
  EXPECT_FALSE(set.decided());
  EXPECT_TRUE(set.choose({2}));
  EXPECT_FALSE(set.choose({0}));
  EXPECT_TRUE(set.has_taken(2));
  EXPECT_FALSE(set.has_taken(0));
}

TEST(BackupSet, NextStepStartsEmptyAndKeepsThePreviousOne) {
  BackupSet set;
  set.add(push_of(kAnna, {0, 2}));
  set.choose({0});
  set.take();
  EXPECT_THAT(set.complete(), IsEmpty());
  EXPECT_FALSE(set.decided());
  EXPECT_TRUE(set.had_taken(0));
  EXPECT_FALSE(set.had_taken(2));
  EXPECT_TRUE(set.add(push_of(kAnna, {0, 2})));
}

wire::Arrived arrived(uint64_t server, int64_t step, std::initializer_list<int> shares) {
  wire::Arrived out;
  out.set_incarnation(server);
  out.set_step(step);
  for (const int lo : shares) out.add_lo(lo);
  return out;
}

TEST(BackupChoice, TakesThePushesThatAreFirstCompleteOnAllServers) {
  BackupChoice choice(2, 2);
  EXPECT_FALSE(choice.take(arrived(1, 0, {0, 2, 4})));
  EXPECT_FALSE(choice.take(arrived(2, 0, {4})));
  EXPECT_FALSE(choice.take(arrived(2, 0, {4}))) << "a repeat";
  EXPECT_TRUE(choice.take(arrived(2, 0, {2, 4})));
  EXPECT_TRUE(choice.fixed_now());
  EXPECT_THAT(choice.chosen()->lo(), ElementsAre(2, 4));
  EXPECT_TRUE(choice.take(arrived(2, 0, {0, 2, 4}))) << "a repeated question gets the same answer";
  EXPECT_FALSE(choice.fixed_now());
  EXPECT_THAT(choice.chosen()->lo(), ElementsAre(2, 4));
}

TEST(BackupChoice, SimultaneousPushesAreTakenInShareOrder) {
  BackupChoice choice(1, 1);
  EXPECT_TRUE(choice.take(arrived(1, 3, {4, 2})));
  EXPECT_THAT(choice.chosen()->lo(), ElementsAre(2));
}

TEST(BackupChoice, StepsDoNotMix) {
  BackupChoice choice(2, 1);
  choice.take(arrived(1, 0, {0}));
  EXPECT_FALSE(choice.take(arrived(2, 1, {0}))) << "the other server is a step behind";
  EXPECT_FALSE(choice.take(arrived(1, 0, {0}))) << "a stale message";
  EXPECT_FALSE(choice.chosen());
  EXPECT_TRUE(choice.take(arrived(1, 1, {0, 2})));
  EXPECT_EQ(choice.chosen()->step(), 1);
}

}  // namespace
}  // namespace pushpull

#include "client/announcements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

HandedTask task(int64_t step, int64_t micro_batch) {
  return {step >= 0, step, micro_batch, 0, {micro_batch}};
}

// Takes all that wait. Returns their micro-batches.
std::vector<int64_t> told(Announcements& announcements) {
  std::vector<int64_t> out;
  while (const auto next = announcements.take()) out.push_back(next->micro_batch);
  return out;
}

TEST(Announcements, TellEachTaskOnceInOrder) {
  Announcements announcements;
  for (const int64_t m : {3, 4, 3, 5}) announcements.add(task(7, m));
  EXPECT_EQ(announcements.take()->micro_batch, 3);
  announcements.add(task(7, 3));
  EXPECT_THAT(told(announcements), ElementsAre(4, 5));
  announcements.add(task(7, 5));
  EXPECT_THAT(told(announcements), IsEmpty());
}

TEST(Announcements, ATaskThatBeginsIsNotAnnouncedAnyMoreNorThoseBeforeIt) {
  Announcements announcements;
  for (const int64_t m : {1, 2, 3}) announcements.add(task(7, m));
  announcements.begin(task(7, 2));
  EXPECT_THAT(told(announcements), ElementsAre(3));
}

TEST(Announcements, ATaskThatComesAgainIsAnnouncedAgain) {
  Announcements announcements;
  announcements.add(task(-1, 0));  // a chunk of each evaluation
  EXPECT_THAT(told(announcements), ElementsAre(0));
  announcements.begin(task(-1, 0));
  announcements.add(task(-1, 0));
  EXPECT_THAT(told(announcements), ElementsAre(0));
}

TEST(Announcements, AnUnreadQueueKeepsTheFirstTasks) {
  Announcements announcements;
  const auto most = static_cast<int64_t>(Announcements::kMaxTasks);
  for (int64_t m = 0; m < 2 * most; ++m) announcements.add(task(0, m));
  EXPECT_EQ(announcements.take()->micro_batch, 0);
  EXPECT_THAT(told(announcements), SizeIs(most - 1));
  announcements.add(task(0, most));
  EXPECT_THAT(told(announcements), ElementsAre(most));
}

TEST(Announcements, TasksThatNeverComeAreForgotten) {
  Announcements announcements;
  const auto most = static_cast<int64_t>(Announcements::kMaxTasks);
  for (int64_t step = 0; step <= most; ++step) {
    announcements.add(task(step, 0));
    EXPECT_THAT(told(announcements), ElementsAre(0));
  }
  announcements.add(task(0, 0));
  announcements.add(task(2, 0));
  EXPECT_THAT(told(announcements), ElementsAre(0)) << "step 0 only";
}

}  // namespace
}  // namespace pushpull

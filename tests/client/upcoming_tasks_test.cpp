#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "client/handover.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

HandedTask task(int64_t step, int64_t micro_batch) {
  return {step >= 0, step, micro_batch, 0, {micro_batch}};
}

// Takes all that wait. Returns their micro-batches.
std::vector<int64_t> told(UpcomingTasks& upcoming) {
  std::vector<int64_t> out;
  while (const auto next = upcoming.take()) out.push_back(next->micro_batch);
  return out;
}

TEST(UpcomingTasks, TellEachTaskOnceInOrder) {
  UpcomingTasks upcoming;
  for (const int64_t m : {3, 4, 3, 5}) upcoming.add(task(7, m));
  EXPECT_EQ(upcoming.take()->micro_batch, 3);
  upcoming.add(task(7, 3));
  EXPECT_THAT(told(upcoming), ElementsAre(4, 5));
  upcoming.add(task(7, 5));
  EXPECT_THAT(told(upcoming), IsEmpty());
}

TEST(UpcomingTasks, ATaskThatBeginsIsNotAnnouncedAnyMoreNorThoseBeforeIt) {
  UpcomingTasks upcoming;
  for (const int64_t m : {1, 2, 3}) upcoming.add(task(7, m));
  upcoming.begin(task(7, 2));
  EXPECT_THAT(told(upcoming), ElementsAre(3));
}

TEST(UpcomingTasks, ATaskThatComesAgainIsAnnouncedAgain) {
  UpcomingTasks upcoming;
  upcoming.add(task(-1, 0));  // a chunk of each evaluation
  EXPECT_THAT(told(upcoming), ElementsAre(0));
  upcoming.begin(task(-1, 0));
  upcoming.add(task(-1, 0));
  EXPECT_THAT(told(upcoming), ElementsAre(0));
}

TEST(UpcomingTasks, AnUnreadQueueKeepsTheFirstTasks) {
  UpcomingTasks upcoming;
  const auto most = static_cast<int64_t>(UpcomingTasks::kMaxTasks);
  for (int64_t m = 0; m < 2 * most; ++m) upcoming.add(task(0, m));
  EXPECT_EQ(upcoming.take()->micro_batch, 0);
  EXPECT_THAT(told(upcoming), SizeIs(most - 1));
  upcoming.add(task(0, most));
  EXPECT_THAT(told(upcoming), ElementsAre(most));
}

TEST(UpcomingTasks, TasksThatNeverComeAreForgotten) {
  UpcomingTasks upcoming;
  const auto most = static_cast<int64_t>(UpcomingTasks::kMaxTasks);
  for (int64_t step = 0; step <= most; ++step) {
    upcoming.add(task(step, 0));
    EXPECT_THAT(told(upcoming), ElementsAre(0));
  }
  upcoming.add(task(0, 0));
  upcoming.add(task(2, 0));
  EXPECT_THAT(told(upcoming), ElementsAre(0)) << "step 0 only";
}

}  // namespace
}  // namespace pushpull

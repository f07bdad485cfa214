#include "common/barriers.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

template <class Check>
void for_each_setting(const Check& check) {
  for (const int64_t eval : {0, 1, 3, 7, 100}) {
    for (const int64_t checkpoint : {0, 1, 4, 7, 100}) {
      for (const int64_t start : {0, 5, 12}) {
        const Barriers barriers{eval, checkpoint, start, 20};
        SCOPED_TRACE(testing::Message() << "eval-every " << eval << ", checkpoint-every "
                                        << checkpoint << ", from " << start);
        check(barriers);
      }
    }
  }
}

TEST(Barriers, NothingIsDueAtTheStartOrBeforeAndBothAtTheEnd) {
  for_each_setting([](const Barriers& b) {
    for (int64_t step = 0; step <= b.start_step; ++step) EXPECT_FALSE(b.is_barrier(step)) << step;
    EXPECT_TRUE(b.evaluation_due(b.end_step));
    EXPECT_TRUE(b.checkpoint_due(b.end_step));
    EXPECT_FALSE(b.is_barrier(b.end_step + 1));
    EXPECT_FALSE(b.is_barrier(b.end_step + 80));
  });
}

TEST(Barriers, AreDueEveryNSteps) {
  const Barriers b{3, 4, 0, 14};
  for (const int64_t step : {3, 6, 9, 12, 14}) EXPECT_TRUE(b.evaluation_due(step)) << step;
  for (const int64_t step : {4, 8, 12, 14}) EXPECT_TRUE(b.checkpoint_due(step)) << step;
  for (const int64_t step : {1, 2, 4, 5, 8, 13}) EXPECT_FALSE(b.evaluation_due(step)) << step;
  for (const int64_t step : {1, 3, 6, 9, 13}) EXPECT_FALSE(b.checkpoint_due(step)) << step;
}

TEST(Barriers, TheLastOneIsFoundFromAnyStep) {
  for_each_setting([](const Barriers& b) {
    for (int64_t step = b.start_step; step <= b.end_step + 3; ++step) {
      int64_t want = b.start_step;
      for (int64_t s = b.start_step; s <= step; ++s) {
        if (b.is_barrier(s)) want = s;
      }
      EXPECT_EQ(b.last(step), want) << step;
    }
  });
}

TEST(Barriers, TheNextOneIsFoundFromAnyStep) {
  for_each_setting([](const Barriers& b) {
    for (int64_t step = b.start_step; step < b.end_step; ++step) {
      int64_t want = step + 1;
      while (!b.is_barrier(want)) ++want;
      EXPECT_EQ(b.next(step), want) << step;
    }
  });
}

}  // namespace
}  // namespace pushpull

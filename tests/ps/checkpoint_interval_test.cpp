#include "ps/report/checkpoint_interval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace pushpull {
namespace {

using testing::HasSubstr;

// Simulates a run with steps of 10 ms. A checkpoint stops it for `stop_ms` and then writes for
// `write_ms`, during which a step takes `slow` times as long.
class Training {
 public:
  explicit Training(int64_t stop_ms, int64_t write_ms = 0, double slow = 1.0)
      : stop_ms_(stop_ms), write_ms_(write_ms), slow_(slow) {
    interval_.begin(now_ms_, 0);
  }
  // Trains for `ms`. lost_ms() returns the milliseconds that checkpoints cost.
  void train(int64_t ms) {
    for (const int64_t end = now_ms_ + ms; now_ms_ < end;) {
      if (interval_.due(now_ms_)) {
        checkpoint();
      } else {
        pass(10, 1.0);
      }
    }
  }
  void checkpoint() {
    interval_.reach(now_ms_, step());
    interval_.chosen(now_ms_, step());
    now_ms_ += stop_ms_;
    lost_ms_ += static_cast<double>(stop_ms_);
    interval_.gathering(now_ms_, step());
    pass(write_ms_, slow_);
    interval_.done(now_ms_, step());
    ++checkpoints_;
    longest_ms_ = std::max(longest_ms_, now_ms_ - newest_ms_);
    newest_ms_ = now_ms_;
  }
  void costs(int64_t stop_ms) { stop_ms_ = stop_ms; }

  CheckpointInterval& interval() { return interval_; }
  int64_t step() const { return static_cast<int64_t>(steps_); }
  int64_t now_ms() const { return now_ms_; }
  double lost_ms() const { return lost_ms_; }
  int64_t checkpoints() const { return checkpoints_; }
  int64_t longest_ms() const { return longest_ms_; }

 private:
  void pass(int64_t ms, double slow) {
    now_ms_ += ms;
    steps_ += static_cast<double>(ms) / 10 / slow;
    lost_ms_ += static_cast<double>(ms) * (1 - 1 / slow);
  }

  int64_t stop_ms_;
  int64_t write_ms_;
  double slow_;
  CheckpointInterval interval_;
  int64_t now_ms_ = 1'000'000;
  int64_t newest_ms_ = 1'000'000;
  double steps_ = 0;
  double lost_ms_ = 0;
  int64_t checkpoints_ = 0;
  int64_t longest_ms_ = 0;
};

TEST(CheckpointInterval, FirstCheckpointIsDueTenSecondsAfterTheStart) {
  EXPECT_FALSE(CheckpointInterval().due(1'000'000'000));
  CheckpointInterval interval;
  interval.begin(500, 0);
  EXPECT_FALSE(interval.due(10'499));
  EXPECT_TRUE(interval.due(10'500));
  interval.reach(10'500, 100);
  EXPECT_EQ(interval.steps_in(100), 1) << "0.01 steps in a millisecond";
  interval.chosen(10'500, 100);
  EXPECT_FALSE(interval.due(99'999)) << "one at a time";
}

TEST(CheckpointInterval, CheckpointsCostOnePercentOfTheTime) {
  for (const int64_t stop_ms : {0, 1, 20, 100, 500, 3000}) {
    for (const int64_t write_ms : {0, 40, 400, 4000}) {
      for (const double slow : {1.0, 1.2, 3.0}) {
        SCOPED_TRACE(testing::Message() << stop_ms << ", " << write_ms << ", " << slow);
        Training run(stop_ms, write_ms, slow);
        run.train(3'600'000);
        const double share = run.lost_ms() / 3'600'000;
        // steps are whole, so the cost of a checkpoint is measured to one step
        EXPECT_LT(share, 0.0105);
        EXPECT_GT(run.checkpoints(), 3);
        const double each_ms = run.lost_ms() / static_cast<double>(run.checkpoints());
        const double min_ms = std::max(each_ms * 100, static_cast<double>(write_ms) * 5);
        EXPECT_LT(static_cast<double>(run.longest_ms()),
                  3 * std::max(min_ms, 10'000.0) + 4 * static_cast<double>(write_ms))
            << "checkpoints are rarer than necessary";
      }
    }
  }
}

TEST(CheckpointInterval, FreeCheckpointsAreDueEveryFiveSeconds) {
  Training run(0);
  run.train(100'000);
  EXPECT_EQ(run.checkpoints(), 90 / 5) << "the first is due after 10 s";
}

TEST(CheckpointInterval, SlowDiskCostsOnlyIfStepsAreSlower) {
  Training run(0, 8000, 1.0);
  run.train(1'000'000);
  EXPECT_GT(run.checkpoints(), 20) << "one per 40 s, five times the 8 s of a write";
  Training slower(0, 8000, 2.0);
  slower.train(1'000'000);
  EXPECT_LT(slower.checkpoints(), 4) << "each costs 4 s of training: one per 400 s";
}

TEST(CheckpointInterval, ExpensiveCheckpointDelaysTheNextOnes) {
  Training run(20);
  run.train(60'000);
  const int64_t before = run.checkpoints();
  run.costs(6000);
  run.checkpoint();
  run.costs(20);
  run.train(500'000);
  EXPECT_EQ(run.checkpoints(), before + 1) << "a cost of 6 s takes 600 s";
  run.train(1'000'000);
  EXPECT_GT(run.checkpoints(), before + 10);
}

TEST(CheckpointInterval, WithoutStepsTheWholeCheckpointTimeIsItsCost) {
  CheckpointInterval interval;
  interval.begin(0, 7);
  interval.chosen(10'000, 7);
  interval.gathering(10'000, 7);
  interval.done(10'500, 7);
  EXPECT_FALSE(interval.due(99'999));
  EXPECT_TRUE(interval.due(100'000)) << "0.5 s spent and 0.5 s for the next one are 1% of 100 s";
}

TEST(CheckpointInterval, NewTermInheritsTheCost) {
  CheckpointInterval interval;
  interval.begin(0, 0);
  interval.chosen(10'000, 1000);
  interval.gathering(10'000, 1000);
  interval.done(10'400, 1000);
  interval.begin(20'000, 500);
  EXPECT_FALSE(interval.due(79'999));
  EXPECT_TRUE(interval.due(80'000));
  interval.chosen(80'000, 900);
  interval.begin(90'000, 700);
  EXPECT_TRUE(interval.due(90'000)) << "a checkpoint in progress ends with its term";
  interval.done(91'000, 800);
  EXPECT_TRUE(interval.due(91'000)) << "the checkpoint belongs to the previous term";
}

TEST(CheckpointInterval, LineSaysHowManyStepsALossRepeats) {
  CheckpointInterval interval;
  interval.begin(0, 0);
  interval.reach(10'000, 2000);
  interval.chosen(10'000, 2000);
  interval.gathering(10'100, 2020);
  interval.done(10'350, 2050);  // 70 steps' time less 50
  EXPECT_EQ(
      interval.line(),
      "the checkpoint of step 2020 took 0.2 s and cost about 100 ms of training; the next one "
      "is due in 9.6 s: until it is on disk, a loss repeats at most 2030 steps (10.1 s)");
}

}  // namespace
}  // namespace pushpull

// Tests tasks that begin before all of their weights have arrived. The test plays the servers.
// Server 0 has slices 0 and 2, server 1 has slice 1.
#include <gtest/gtest.h>

#include "tests/worker/exchange_fixture.h"
#include "worker/exchange/push_pull.h"

namespace pushpull {
namespace {

constexpr Range kFirst{0, 1024};
constexpr Range kSecond{1024, 2048};

class Early : public Exchange {
 protected:
  // The worker has pushed step 4, and its pull for step 5 is in flight.
  void pull_under_way(const std::string& strategy) {
    make("strategy = " + strategy + "\n");
    assign({1});
    push(ready_at(4));
    number_ = newest_pull().number();
  }
  int64_t number_ = 0;
};

TEST_F(Early, TaskBeginsWithTheFirstSliceAndEachTensorWaitsForItsSlices) {
  pull_under_way("sync");
  EXPECT_FALSE(worker_->early()) << "no slice has arrived";
  hear(0, weights(0, number_, 5, 7.0F, 1));
  EXPECT_EQ(next().kind, Task::kWait);
  const auto task = worker_->early();
  ASSERT_TRUE(task);
  EXPECT_EQ(task->kind, Task::kCompute);
  EXPECT_EQ(task->step, 5);
  EXPECT_EQ(task->range, (Range{2, 4}));
  const std::span<const float> weights_then = worker_->weights_of(*task);
  EXPECT_TRUE(worker_->here(kFirst));
  EXPECT_EQ(weights_then[0], 7.0F);
  EXPECT_EQ(worker_->weights()[0], 1.0F)
      << "the previous weights stay until all new ones have arrived";
  EXPECT_FALSE(worker_->here(kSecond));
  EXPECT_FALSE(worker_->here({0, kElements})) << "a tensor over all slices";
  EXPECT_FALSE(worker_->all_here());

  hear(1, weights(1, number_, 5, 8.0F, 1));
  EXPECT_TRUE(worker_->here(kSecond));
  EXPECT_TRUE(worker_->all_here());
  EXPECT_TRUE(worker_->is_current(*task));
  EXPECT_EQ(weights_then[1024], 8.0F);
  EXPECT_EQ(worker_->weights_of(*task).data(), weights_then.data()) << "the same memory";
  EXPECT_EQ(worker_->weights().data(), weights_then.data());
  EXPECT_EQ(worker_->read_versions(), (std::vector<int64_t>{5, 5}));
  push(*task);
}

TEST_F(Early, NextPushWaitsUntilTheLastOneIsAcknowledged) {
  pull_under_way("sync");
  hear(0, weights(0, number_, 5, 7.0F, 0));
  hear(1, weights(1, number_, 5, 7.0F, 1));
  const auto task = worker_->early();
  ASSERT_TRUE(task);
  EXPECT_TRUE(worker_->here({0, kElements}));
  EXPECT_FALSE(worker_->all_here()) << "server 0 has not acknowledged the push";
  hear(0, status(number_, 1));
  EXPECT_TRUE(worker_->all_here());
}

TEST_F(Early, TakenOverShareComesFirstOnThePreviousWeights) {
  pull_under_way("sync");
  hear(0, weights(0, number_, 5, 7.0F, 1));
  const auto task = worker_->early();
  ASSERT_TRUE(task);
  assign({0, 1}, 2, 4);
  EXPECT_FALSE(worker_->is_current(*task));
  const Task lost = next();
  EXPECT_EQ(lost.kind, Task::kCompute);
  EXPECT_EQ(lost.step, 4);
  EXPECT_EQ(lost.range, (Range{0, 2}));
  EXPECT_EQ(worker_->weights_of(lost)[0], 1.0F);
  push(lost);
  EXPECT_FALSE(worker_->early()) << "the slices of the first pull are dropped";
}

TEST_F(Early, TaskOfARemovedShareIsDropped) {
  pull_under_way("sync");
  hear(0, weights(0, number_, 5, 7.0F, 1));
  const auto task = worker_->early();
  ASSERT_TRUE(task);
  assign({}, 2);
  EXPECT_FALSE(worker_->is_current(*task));
}

TEST_F(Early, NewcomerAndEvaluationWaitForAllWeights) {
  make("strategy = sync\neval-every = 5\n");
  assign({1});
  next();
  hear(0, weights(0, newest_pull().number(), 4, 1.0F));
  EXPECT_FALSE(worker_->early()) << "the run may be elsewhere";
  hear(1, weights(1, 1, 4, 1.0F));
  push(next());
  hear(0, weights(0, newest_pull().number(), 5, 7.0F, 1));
  EXPECT_FALSE(worker_->early()) << "the evaluation of barrier 5 comes first";
}

TEST_F(Early, OtherStrategiesWaitForAllWeights) {
  for (const char* strategy : {"ssp:1", "backup:1"}) {
    SCOPED_TRACE(strategy);
    pull_under_way(strategy);
    hear(0, weights(0, number_, 5, 7.0F, 1));
    EXPECT_FALSE(worker_->early());
  }
}

// A group's task cannot begin twice. Weights in place may turn out not to be contiguous, and the pull starts anew.
TEST_F(Early, GroupWaitsForAllWeightsIfTheyAreInPlace) {
  for (const bool shared : {false, true}) {
    for (const char* stages : {"1", "2"}) {
      make(std::string("strategy = sync\nstages = ") + stages + "\n");
      assign({1});
      const Task fourth = ready_at(4);
      worker_->share_memory(0, shared, false);
      push(fourth);
      worker_->share_memory(0, true, false);  // what is shared later counts in the next pull
      hear(0, weights(0, newest_pull().number(), 5, 7.0F, 1));
      EXPECT_EQ(worker_->early().has_value(), !shared || stages == std::string("1"));
    }
  }
}

TEST_F(Early, RoundOfLocalStepsBeginsEarlyToo) {
  make("strategy = local:2\n");
  setup_.barriers.round = 2;
  worker_ = std::make_unique<PushPull>(setup_);
  assign({1});
  push(ready_at(4));
  hear(0, weights(0, newest_pull().number(), 6, 7.0F, 1));
  const auto task = worker_->early();
  ASSERT_TRUE(task);
  EXPECT_EQ(task->step, 6);
  EXPECT_EQ(task->steps, 2);
}

}  // namespace
}  // namespace pushpull

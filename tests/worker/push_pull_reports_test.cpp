// The worker's exchange in all-reduce: pushes without parts report to server 0, and nothing is pulled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/error.h"
#include "tests/worker/exchange_fixture.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

class Reports : public Exchange {
 protected:
  void start(const std::string& keys = {}) {
    setup_.acknowledge = true;
    make("strategy = allreduce:tree\nheartbeat-timeout = 10\n" + keys);
    assign({1});
  }
  // Computes the next task, and returns it.
  Task report() {
    const Task task = next();
    EXPECT_EQ(task.kind, Task::kCompute);
    worker_->begin_push(task.step, task.range);
    worker_->end_push({0.5F, 0.25F}, 0.0, now_);
    return task;
  }
  void acknowledge(int64_t through) { hear(0, status(0, through, false, 0)); }
};

TEST_F(Reports, GoToServerZeroAloneAndTheNextTaskFollowsAtOnce) {
  start();
  EXPECT_EQ(report(), (Task{Task::kCompute, 0, {2, 4}}));
  const auto sent = sent_to(0);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_FALSE(sent[0].has_pull());
  EXPECT_EQ(sent[0].push().step(), 0);
  EXPECT_EQ(sent[0].push().parts_total(), 0);
  EXPECT_EQ(sent[0].push().losses_size(), 2);
  EXPECT_TRUE(sent[0].push().acknowledge());
  EXPECT_TRUE(sent_to(1).empty());
  EXPECT_EQ(report().step, 1);
  EXPECT_EQ(worker_->unacknowledged(), 2);
  acknowledge(1);
  EXPECT_EQ(worker_->unacknowledged(), 1);
}

TEST_F(Reports, AreRepeatedASecondLaterUntilTheyAreAcknowledged) {
  start();
  later(0);
  report();
  report();
  forget_sent();
  later(999);
  EXPECT_TRUE(sent_to(0).empty());
  later(1);
  EXPECT_EQ(sent_to(0).size(), 2U);
  acknowledge(1);
  later(1000);
  const auto sent = sent_to(0);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].push().number(), 2);
  acknowledge(2);
  later(1000);
  EXPECT_TRUE(sent_to(0).empty());
}

TEST_F(Reports, ASilentServerEndsTheWorker) {
  start();
  later(0);
  report();
  std::string text;
  try {
    for (int second = 0; second < 30; ++second) later(1000);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnreachable);
    text = e.what();
  }
  EXPECT_THAT(text, HasSubstr("server 0 has not answered for 10 s"));
}

TEST_F(Reports, TheSilenceDoesNotCountWhileTheWorkerIsBusy) {
  start();
  later(0);
  report();
  later(60'000);  // in a sum with a slow worker: the answer may not be read yet
  later(1000);
  EXPECT_NO_THROW(later(1000));
}

TEST_F(Reports, AnEvaluationFollowsItsStepAndTheRunEnds) {
  start("eval-every = 1\n");
  for (int64_t step = 0; step < 10; ++step) {
    EXPECT_EQ(report().step, step);
    const Task task = next();
    EXPECT_EQ(task, (Task{Task::kEvaluate, step + 1, {2, 4}}));
    worker_->finish_evaluation();
  }
  EXPECT_EQ(next().kind, Task::kDone);
}

}  // namespace
}  // namespace pushpull

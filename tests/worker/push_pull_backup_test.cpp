// The worker's exchange under backup:B.
#include "tests/worker/exchange_fixture.h"

namespace pushpull {
namespace {

class Backup : public Exchange {
 protected:
  void start(const std::string& keys = "") {
    make("strategy = backup:1\n" + keys);
    assign({0});
  }
  // Answers the newest pull and returns it.
  wire::Pull pulled(int64_t version) {
    const wire::Pull pull = newest_pull();
    for (const int server : {0, 1}) hear(server, weights(server, pull.number(), version, 1.0F, 9));
    return pull;
  }
};

TEST_F(Backup, ComputesTheStepOfTheNewestVersion) {
  start();
  next();
  EXPECT_TRUE(pulled(0).latest());
  push(next());
  const wire::Pull pull = pulled(4);  // the others have continued
  EXPECT_TRUE(pull.latest());
  EXPECT_EQ(pull.clock(), 1);
  const Task task = next();
  EXPECT_EQ(task.kind, Task::kCompute);
  EXPECT_EQ(task.step, 4);
}

TEST_F(Backup, ComputesOnOneVersionOfAllServers) {
  start();
  next();
  const int64_t first = newest_pull().number();
  hear(0, weights(0, first, 3, 1.0F));
  hear(1, weights(1, first, 2, 1.0F));
  const wire::Pull exact = newest_pull();
  EXPECT_FALSE(exact.latest());
  EXPECT_EQ(exact.clock(), 2);
  hear(1, weights(1, exact.number(), 2, 1.0F));
  hear(0, status(exact.number(), 0));  // it has version 4 by now
  next();
  EXPECT_TRUE(pulled(4).latest()) << "starts over";
  EXPECT_EQ(next().step, 4);
}

TEST_F(Backup, EvaluatesAPassedBarrier) {
  start("eval-every = 3\n");
  next();
  pulled(0);
  push(next());
  pulled(5);
  EXPECT_EQ(next().kind, Task::kWait);
  const wire::Pull barrier = pulled(3);
  EXPECT_TRUE(barrier.barrier());
  EXPECT_EQ(barrier.clock(), 3);
  const Task task = next();
  EXPECT_EQ(task.kind, Task::kEvaluate);
  EXPECT_EQ(task.step, 3);
  EXPECT_EQ(task.range, (Range{0, 2}));
  worker_->finish_evaluation();
  next();
  const wire::Pull again = pulled(5);
  EXPECT_TRUE(again.latest());
  EXPECT_EQ(again.clock(), 5) << "newer than the barrier";
  EXPECT_EQ(next().step, 5);
}

TEST_F(Backup, EvaluatesAndComputesOnTheSameWeightsIfItIsOnTime) {
  start("eval-every = 3\n");
  next();
  pulled(3);
  EXPECT_EQ(next().kind, Task::kEvaluate);
  worker_->finish_evaluation();
  const Task task = next();
  EXPECT_EQ(task.kind, Task::kCompute);
  EXPECT_EQ(task.step, 3);
}

TEST_F(Backup, CompleteEvaluationIsSkipped) {
  start("eval-every = 3\n");
  next();
  pulled(5);
  next();
  const int64_t number = newest_pull().number();
  for (const int server : {0, 1}) {
    Message message = weights(server, number, 5 + server, 1.0F);
    message.header.mutable_weights()->set_at_barrier(false);
    hear(server, message);
  }
  EXPECT_EQ(next().kind, Task::kWait) << "the two servers have different versions";
  EXPECT_TRUE(pulled(6).latest());
  EXPECT_EQ(next().kind, Task::kEvaluate) << "barrier 6";
}

TEST_F(Backup, FinalWeightsAreEvaluatedByALateWorkerToo) {
  start();
  next();
  pulled(2);
  push(next());
  pulled(10);
  const Task task = next();
  EXPECT_EQ(task.kind, Task::kEvaluate);
  EXPECT_EQ(task.step, 10);
  worker_->finish_evaluation();
  EXPECT_EQ(next().kind, Task::kDone);
}

TEST_F(Backup, ShareWithoutMicroBatchesIsOnlyEvaluated) {
  start("eval-every = 3\n");
  next();
  pulled(2);
  wire::State state;
  state.set_version(2);
  state.add_assigned()->set_hi(2);
  state.add_assigned()->set_index(1);  // without micro-batches
  worker_->on_state(state, now_);
  push(next());
  pulled(3);
  for (const Range chunks : {Range{0, 2}, Range{2, 4}}) {
    const Task task = next();
    EXPECT_EQ(task.kind, Task::kEvaluate);
    EXPECT_EQ(task.range, chunks);
    worker_->finish_evaluation();
  }
  const Task task = next();
  EXPECT_EQ(task.kind, Task::kCompute);
  EXPECT_EQ(task.range, (Range{0, 2}));
  push(task);
  EXPECT_EQ(next().kind, Task::kWait) << "no task of the other share";
}

TEST_F(Backup, SecondShareIsComputedBeforeTheNextStep) {
  start();
  next();
  pulled(0);
  push(next());
  assign({0, 1}, 2);
  const Task task = next();
  EXPECT_EQ(task.kind, Task::kCompute);
  EXPECT_EQ(task.step, 0);
  EXPECT_EQ(task.range, (Range{2, 4}));
}

TEST_F(Exchange, LocalPushesARoundAndPullsTheNext) {
  make("strategy = local:4\n");
  setup_.barriers.round = 4;
  worker_ = std::make_unique<PushPull>(setup_);
  assign({0});
  for (const auto& [step, steps] : {std::pair{0, 4}, {4, 4}, {8, 2}}) {
    const Task task = ready_at(step);
    EXPECT_EQ(task.kind, Task::kCompute);
    EXPECT_EQ(task.step, step);
    EXPECT_EQ(task.steps, steps);
    forget_sent();
    push(task);
    const auto sent = sent_to(0);
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_EQ(sent[0].push().steps(), steps);
    EXPECT_EQ(sent[0].push().parts_total(), 2);
    EXPECT_EQ(sent[0].pull().clock(), step + steps);
    for (const int server : {0, 1}) {
      hear(server, weights(server, sent[0].pull().number(), step + steps, 1.0F, 9));
    }
  }
  EXPECT_EQ(next().kind, Task::kEvaluate);
}

}  // namespace
}  // namespace pushpull

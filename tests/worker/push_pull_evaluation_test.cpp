// Steps after an evaluation whose result may end the run (stop-when, checkpoint-best).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/exchange_fixture.h"

namespace pushpull {
namespace {

class AwaitedEvaluation : public Exchange {
 protected:
  void make_awaiting(const std::string& keys) {
    make(keys + "eval-every = 2\nstop-when = loss:1\n");
    setup_.barriers.awaits_evaluations = true;
    worker_ = std::make_unique<PushPull>(setup_);
  }
  // The coordinator has the result of this evaluation, and the run goes on.
  void go_on_after(int64_t step) {
    wire::State state;
    state.set_version(++version_);
    state.set_evaluated_barrier(step);
    *state.add_assigned() = share_;
    worker_->on_state(state, now_);
  }
  void assign_first() {
    share_.set_lo(2);
    share_.set_hi(4);
    share_.set_index(1);
    go_on_after(0);
  }

  wire::Share share_;
  int64_t version_ = 0;
};

TEST_F(AwaitedEvaluation, NoStepBeginsBeforeItsResultIsKnown) {
  make_awaiting("strategy = sync\n");
  assign_first();
  Task task = ready_at(0);
  ASSERT_EQ(task.kind, Task::kCompute);
  push(task);
  answer(1, 1.0F, 1);
  task = ready_at(1);
  ASSERT_EQ(task.step, 1);
  push(task);
  answer(2, 1.0F, 2);
  task = ready_at(2);
  ASSERT_EQ(task.kind, Task::kEvaluate);
  worker_->finish_evaluation();
  EXPECT_EQ(next().kind, Task::kWait) << "the weights are here";
  EXPECT_FALSE(worker_->early());
  EXPECT_EQ(worker_->waiting_for(), "the result of an evaluation");
  go_on_after(2);
  task = next();
  EXPECT_EQ(task.kind, Task::kCompute);
  EXPECT_EQ(task.step, 2);
}

TEST_F(AwaitedEvaluation, AJobThatFollowsNoneGoesOnAtOnce) {
  make("strategy = sync\neval-every = 2\n");
  assign({1});
  const Task task = ready_at(2);
  ASSERT_EQ(task.kind, Task::kEvaluate);
  worker_->finish_evaluation();
  EXPECT_EQ(next().kind, Task::kCompute);
}

class Averages : public Exchange, public testing::WithParamInterface<const char*> {
 protected:
  void make_averaging() {
    make(std::string("strategy = ") + GetParam() +
         "\neval-every = 2\nema = 0.9\neval-weights = ema\n");
    setup_.barriers.averages = true;
    worker_ = std::make_unique<PushPull>(setup_);
  }
};

TEST_P(Averages, AreReplacedByTheWeightsBeforeTheNextStep) {
  make_averaging();
  for (const int server : {0, 1}) worker_->share_memory(server, true);
  assign({1});
  Task task = next();
  for (int i = 0; task.kind == Task::kWait && i < 3; ++i) {
    answer(2, 1.0F);
    task = next();
  }
  for (int i = 0; task.kind == Task::kWait && i < 3; ++i) {
    const wire::Pull pull = newest_pull();
    EXPECT_TRUE(pull.barrier());
    EXPECT_FALSE(pull.in_place()) << "averages are in no memory that servers share";
    for (const int server : {0, 1}) hear(server, weights(server, pull.number(), 2, 7.0F));
    task = next();
  }
  ASSERT_EQ(task.kind, Task::kEvaluate);
  ASSERT_EQ(task.step, 2);
  EXPECT_FALSE(worker_->has_weights_of(2));
  worker_->finish_evaluation();
  EXPECT_EQ(next().kind, Task::kWait);
  EXPECT_FALSE(worker_->early());
  EXPECT_FALSE(worker_->has_weights_of(2));
  const wire::Pull pull = newest_pull();
  EXPECT_FALSE(pull.barrier());
  EXPECT_TRUE(pull.in_place() || pull.latest());
  for (const int server : {0, 1}) hear(server, weights(server, pull.number(), 2, 1.0F));
  task = next();
  ASSERT_EQ(task.kind, Task::kCompute);
  EXPECT_EQ(task.step, 2);
  EXPECT_EQ(worker_->weights_of(task)[0], 1.0F);
}

INSTANTIATE_TEST_SUITE_P(Strategies, Averages, testing::Values("sync", "backup:1"));

}  // namespace
}  // namespace pushpull

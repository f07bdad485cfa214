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

}  // namespace
}  // namespace pushpull

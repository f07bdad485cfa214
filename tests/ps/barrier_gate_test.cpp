#include "ps/server/barrier_gate.h"

#include <gtest/gtest.h>

#include "tests/ps/rule_fixture.h"

namespace pushpull {
namespace {

class BarrierGateTest : public RuleTest {
 protected:
  void release(int64_t barrier) {
    wire::State state;
    state.set_released_barrier(barrier);
    gate_->on_state(state);
  }
};

TEST_F(BarrierGateTest, BarrierIsPassedOnceItIsOpen) {
  make("eval-every = 2\n");
  EXPECT_TRUE(gate_->passed(1));
  EXPECT_FALSE(gate_->passed(2));
  EXPECT_FALSE(gate_->due(1)) << "step 1 is not a barrier";
  EXPECT_TRUE(gate_->due(2));
  EXPECT_TRUE(gate_->open(2, 2, false));
  EXPECT_EQ(gate_->newest_open(), 2);
  EXPECT_TRUE(gate_->passed(3));
  EXPECT_FALSE(gate_->due(2)) << "it is already open";
}

TEST_F(BarrierGateTest, CoordinatorMayHoldSteps) {
  make("");
  wire::State state;
  state.set_held_step(3);
  EXPECT_FALSE(gate_->on_state(state));
  EXPECT_TRUE(gate_->passed(2));
  EXPECT_FALSE(gate_->passed(3));
  EXPECT_FALSE(gate_->passes_with_update(4));
  EXPECT_FALSE(gate_->on_state(state)) << "the steps are still held";
  EXPECT_TRUE(gate_->on_state({})) << "waiting pulls must be answered";
  EXPECT_TRUE(gate_->passed(3));
  EXPECT_TRUE(gate_->passes_with_update(4));
}

TEST_F(BarrierGateTest, ChosenCheckpointIsABarrierEvenAtAPassedStep) {
  make("checkpoint-every = auto\n");
  EXPECT_TRUE(gate_->passed(4));
  EXPECT_FALSE(gate_->due(3));
  wire::State state;
  state.add_chosen_checkpoints(3);
  gate_->on_state(state);
  EXPECT_TRUE(gate_->passed(2));
  EXPECT_FALSE(gate_->passed(3));
  EXPECT_TRUE(gate_->due(3));
  EXPECT_TRUE(gate_->open(3, 3, false));
  EXPECT_NE(gate_->find(3), nullptr) << "its snapshot is kept";
  EXPECT_TRUE(gate_->passed(4));
}

TEST_F(BarrierGateTest, OpenBarrierThatBecomesACheckpointOpensAgain) {
  make("eval-every = 2\ncheckpoint-every = auto\n");
  EXPECT_TRUE(gate_->open(2, 2, true));
  EXPECT_EQ(gate_->find(2), nullptr);
  wire::State state;
  state.add_chosen_checkpoints(2);
  gate_->on_state(state);
  EXPECT_FALSE(gate_->passed(2));
  ASSERT_TRUE(gate_->due(2));
  EXPECT_TRUE(gate_->open(2, 2, true));
  EXPECT_NE(gate_->find(2), nullptr);
  gate_->on_state(state);
  EXPECT_TRUE(gate_->passed(2)) << "its snapshot is taken";
  state.set_released_barrier(2);
  gate_->on_state(state);
  EXPECT_TRUE(gate_->passed(2)) << "its snapshot is gathered";
}

TEST_F(BarrierGateTest, AveragesOfAnEvaluationStayAsTheyWere) {
  make("eval-every = 1\nema = 0.5\neval-weights = ema\n");
  const auto train = [&](int64_t step) {
    give(kAnna, step, {0, 2});
    give(kAnna + 1, step, {2, 4});
    ASSERT_TRUE(rule_->apply_due());
  };
  const auto average = [&](int64_t step) {
    wire::Pull pull;
    pull.set_clock(step);
    pull.set_barrier(true);
    const auto answer = rule_->answer(pull, 0);
    return answer ? std::optional(answer->weights.floats()[0]) : std::nullopt;
  };
  EXPECT_FALSE(average(1));
  train(0);
  const float first = weight();
  EXPECT_EQ(average(1), first);
  train(1);
  const float second = 0.5F * first + 0.5F * weight();
  EXPECT_EQ(average(2), second);
  EXPECT_EQ(average(1), first) << "for a worker that takes over a share";
  train(2);
  EXPECT_EQ(average(2), second);
  EXPECT_FALSE(average(1));
  EXPECT_EQ(version(3), 3) << "training takes the weights themselves";
}

TEST_F(BarrierGateTest, StopAtAnOpenBarrierTakesASnapshot) {
  make("eval-every = 2\n");
  EXPECT_TRUE(gate_->open(2, 2, false));
  wire::State state;
  state.set_stop_step(2);
  gate_->on_state(state);
  ASSERT_TRUE(gate_->due(2));
  EXPECT_TRUE(gate_->open(2, 2, false));
  EXPECT_NE(gate_->find(2), nullptr);
}

TEST_F(BarrierGateTest, OnlyACheckpointWithoutRoomDelaysTheNextBarrier) {
  make("checkpoint-every = 1\n");
  EXPECT_TRUE(gate_->passes_with_update(1));
  EXPECT_FALSE(gate_->passes_with_update(2)) << "not the next one";
  gate_->open(1, 1, false);
  gate_->open(2, 2, false);
  EXPECT_FALSE(gate_->passes_with_update(3));
  EXPECT_FALSE(gate_->open(3, 3, false));
  EXPECT_EQ(observer_.waits, std::set<int64_t>{3});
  release(1);
  EXPECT_TRUE(gate_->passes_with_update(3));
}

TEST_F(BarrierGateTest, SnapshotsAreHeldUntilTheyAreReleased) {
  make("checkpoint-every = 1\n");
  EXPECT_EQ(gate_->find(0), nullptr) << "the initial weights are not there yet";
  gate_->take_start(7, false);
  ASSERT_NE(gate_->find(0), nullptr);
  EXPECT_EQ(gate_->find(0)->updates, 7);
  EXPECT_TRUE(gate_->find(0)->state.empty());
  gate_->open(1, 8, false);
  ASSERT_NE(gate_->find(1), nullptr);
  EXPECT_EQ(gate_->find(1)->state.size(), 2U);
  release(0);
  EXPECT_EQ(gate_->find(0), nullptr);
  EXPECT_NE(gate_->find(1), nullptr);
  release(1);
  EXPECT_EQ(gate_->find(1), nullptr);
  EXPECT_EQ(gate_->find(-1), nullptr);
}

TEST_F(BarrierGateTest, KeptWeightsDoNotChange) {
  make("eval-every = 1\nlr = 1\n");
  gate_->open(1, 1, true);
  const float kept = weight();
  give(kAnna, 0, {0, 2});
  give(kBert, 0, {2, 4});
  rule_->apply_due();
  EXPECT_NE(weight(), kept);
  EXPECT_EQ(gate_->kept().step, 1);
  EXPECT_EQ(gate_->kept().weights.at(0).floats()[0], kept);
}

TEST_F(BarrierGateTest, CopyIsASnapshotUntilItIsGathered) {
  make("recovery = peers\ncopy-every = 2\n");
  EXPECT_FALSE(gate_->due(1));
  EXPECT_TRUE(gate_->due(2));
  gate_->open(2, 2, false);
  gate_->open(4, 4, false);
  ASSERT_NE(gate_->find(2), nullptr);
  EXPECT_FALSE(gate_->open(6, 6, false)) << "there is no room";
  release(6);
  EXPECT_TRUE(gate_->open(6, 6, false));
  EXPECT_EQ(gate_->find(6), nullptr) << "a replacement gets the copy from other servers";
}

}  // namespace
}  // namespace pushpull

#include "ps/server/stored_weights.h"

#include <gtest/gtest.h>

#include "tests/ps/refusals.h"
#include "tests/ps/rule_fixture.h"

namespace pushpull {
namespace {

class StoredWeightsTest : public RuleTest {
 protected:
  bool store(int slice, int64_t step) {
    wire::Store store;
    store.set_slice(slice);
    store.set_step(step);
    store.set_updates(step);
    EXPECT_TRUE(taken(rule_->check(store)));
    const std::vector<Payload> payloads{constant_payload(1024, static_cast<float>(step))};
    return rule_->take_stored(store, payloads);
  }
};

TEST_F(StoredWeightsTest, CheckpointOpensOnceItsSlicesAndAllEarlierLossesAreHere) {
  make("strategy = allreduce:ring\ncheckpoint-every = 1\n");
  give(kAnna, 0, {0, 2});
  EXPECT_TRUE(store(0, 1));
  EXPECT_TRUE(store(1, 1));
  EXPECT_TRUE(observer_.barriers.empty()) << "a share of step 0 has not reported";
  EXPECT_FALSE(store(0, 2)) << "the previous snapshot comes first";
  give(kBert, 0, {2, 4});
  EXPECT_EQ(observer_.barriers, std::vector<int64_t>{1});
  EXPECT_EQ(rule_->updates(), 1);
  EXPECT_TRUE(store(0, 2));
}

TEST_F(StoredWeightsTest, EvaluationAloneNeedsNoWeights) {
  make("strategy = allreduce:tree\neval-every = 1\n");
  give(kAnna, 0, {0, 2});
  give(kBert, 0, {2, 4});
  EXPECT_EQ(observer_.barriers, std::vector<int64_t>{1});
}

TEST_F(StoredWeightsTest, LossesNearAHeldStepAreDelayed) {
  make("strategy = allreduce:tree\ncheckpoint-every = auto\n");
  wire::Push push;
  push.set_step(5);
  EXPECT_FALSE(rule_->puts_off(push));
  wire::State state;
  state.set_held_step(16);
  gate_->on_state(state);
  EXPECT_FALSE(rule_->puts_off(push)) << "8 steps later is 13, and 14 follows that step";
  push.set_step(6);
  EXPECT_TRUE(rule_->puts_off(push));
  gate_->on_state({});
  EXPECT_FALSE(rule_->puts_off(push));
}

TEST_F(StoredWeightsTest, PullsAndGradientsAreRefused) {
  make("strategy = allreduce:tree\n");
  EXPECT_TRUE(rule_->nodes_of({0, 2}).empty());
  EXPECT_EQ(reason_of(rule_->check(wire::Pull())), "pull-strategy");
  wire::Push push;
  push.set_hi(2);
  push.add_losses(0.5F);
  EXPECT_EQ(line_of(rule_->check(push)), "[push-losses] expected 2, got 1");
  wire::Store store;
  store.set_step(3);
  EXPECT_EQ(reason_of(rule_->check(store)), "store-step");
}

}  // namespace
}  // namespace pushpull

#include "ps/server/whole_steps.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "common/base/error.h"
#include "tests/ps/rule_fixture.h"

namespace pushpull {
namespace {

class WholeStepsTest : public RuleTest {};

TEST_F(WholeStepsTest, StepIsOneUpdateOfAllItsMicroBatches) {
  make("lr = 1\n");
  const float before = weight();
  give(kBert, 0, {2, 4}, 6.0F);
  rule_->apply_due();
  EXPECT_EQ(rule_->floor(), 0) << "half of the step is missing";
  give(kAnna, 0, {0, 2}, 2.0F);
  EXPECT_EQ(rule_->due_bytes(), kElements * 4);
  rule_->apply_due();
  EXPECT_EQ(rule_->floor(), 1);
  EXPECT_EQ(rule_->updates(), 1);
  EXPECT_FLOAT_EQ(weight(), before - (2.0F + 6.0F) / 4);
}

TEST_F(WholeStepsTest, RepeatedPushCountsOnce) {
  make("lr = 1\n");
  const float before = weight();
  give(kAnna, 0, {0, 2}, 2.0F);
  give(kBert, 0, {0, 2}, 100.0F);
  give(kBert, 0, {2, 4}, 2.0F);
  rule_->apply_due();
  EXPECT_FLOAT_EQ(weight(), before - 1.0F);
  ASSERT_EQ(observer_.commits.size(), 3U);
  EXPECT_FALSE(observer_.commits[1].counted);
}

// lr-schedule = external: a push names its rate in its last message.
TEST_F(WholeStepsTest, StepHasTheRateOfTheWorkerWithItsFirstMicroBatchAndWaitsForIt) {
  make("model = external\nlr = 1\nlr-schedule = external\n");
  const float before = weight();
  ReceivedPush first;
  first.incarnation = kAnna;
  first.range = {0, 2};
  first.learning_rate = 0.5;
  for (const int slice : {0, 1}) {
    rule_->take_part(first, slice, {{0, 2}, constant_payload(1024, 4.0F)});
  }
  ReceivedPush second = first;
  second.incarnation = kBert;
  second.range = {2, 4};
  second.learning_rate = 0.25;
  for (const int slice : {0, 1}) {
    rule_->take_part(second, slice, {{2, 4}, constant_payload(1024, 4.0F)});
  }
  rule_->take_push(std::move(second));
  rule_->apply_due();
  EXPECT_EQ(rule_->floor(), 0) << "all parts are here, and the rate is not";
  rule_->take_push(std::move(first));
  rule_->apply_due();
  EXPECT_EQ(rule_->floor(), 1);
  EXPECT_FLOAT_EQ(weight(), before - 0.5F * 2.0F);
  give(kBert, 1, {2, 4});
  give(kAnna, 1, {0, 2});
  rule_->apply_due();
  EXPECT_FLOAT_EQ(weight(), before - 1.0F - 0.5F) << "without a rate that of the job counts";
}

TEST_F(WholeStepsTest, PullIsAnsweredSliceBySliceInItsVersion) {
  make("");
  give(kAnna, 0, {0, 2});
  ReceivedPush half;
  half.range = {2, 4};
  rule_->take_part(half, 0, {{2, 4}, constant_payload(1024, 1.0F)});
  rule_->apply_due();
  wire::Pull pull;
  pull.set_clock(1);
  EXPECT_TRUE(rule_->asks_for_one_version(pull));
  ASSERT_TRUE(rule_->answer(pull, 0));
  EXPECT_EQ(rule_->answer(pull, 0)->version, 1);
  EXPECT_FALSE(rule_->answer(pull, 1)) << "the other slice lacks a part";
  pull.set_clock(0);
  ASSERT_TRUE(rule_->answer(pull, 0)) << "the previous version is still there";
  EXPECT_EQ(rule_->answer(pull, 0)->version, 0);
}

TEST_F(WholeStepsTest, ClippingWaitsForTheNormOfAllServers) {
  make("lr = 1\nclip-norm = 1\n");
  const float before = weight();
  give(kAnna, 0, {0, 2}, 2.0F);
  give(kBert, 0, {2, 4}, 2.0F);
  rule_->apply_due();
  ASSERT_TRUE(rule_->waiting_norms());
  EXPECT_EQ(rule_->updates(), 0);
  wire::NormTotal total;
  total.set_step(1);
  total.set_norm(4.0);
  EXPECT_FALSE(rule_->on_norm_total(total)) << "the norm belongs to another step";
  total.set_step(0);
  EXPECT_TRUE(rule_->on_norm_total(total));
  EXPECT_FALSE(rule_->waiting_norms());
  EXPECT_NEAR(weight(), before - 0.25F, 1e-5);
}

// Returns an answer to the waiting norms.
wire::NormTotal trust_total(int64_t step, std::vector<double> ratios) {
  wire::NormTotal total;
  total.set_step(step);
  total.set_of_tensors(true);
  for (const double ratio : ratios) total.add_trust(ratio);
  return total;
}

// The first update of lamb moves a weight by the rate and the ratio, whatever the gradient.
TEST_F(WholeStepsTest, LambWaitsForTheTrustRatiosOfAllServers) {
  make("optimizer = lamb\nlr = 0.5\nepsilon = 1e-12\n");
  const float before = weight();
  give(kAnna, 0, {0, 2}, 2.0F);
  give(kBert, 0, {2, 4}, 2.0F);
  rule_->apply_due();
  ASSERT_TRUE(rule_->waiting_norms());
  EXPECT_TRUE(rule_->waiting_norms()->of_tensors());
  EXPECT_EQ(rule_->updates(), 0);
  wire::NormTotal norm;
  norm.set_norm(4.0);
  EXPECT_FALSE(rule_->on_norm_total(norm)) << "it asks for those of tensors";
  const size_t tensors = shard_->tensors();
  EXPECT_FALSE(rule_->on_norm_total(trust_total(1, std::vector<double>(tensors, 0.25))))
      << "another step";
  EXPECT_THROW(rule_->on_norm_total(trust_total(0, std::vector<double>(tensors + 1, 0.25))), Error);
  EXPECT_TRUE(rule_->on_norm_total(trust_total(0, std::vector<double>(tensors, 0.25))));
  EXPECT_FALSE(rule_->waiting_norms());
  EXPECT_EQ(rule_->updates(), 1);
  EXPECT_NEAR(weight(), before - 0.5F * 0.25F, 1e-5);
}

TEST_F(WholeStepsTest, LambMeasuresTheClippedUpdate) {
  make("optimizer = lamb\nlr = 0.5\nepsilon = 1\nclip-norm = 1\n");
  const size_t tensors = shard_->tensors();
  std::vector<double> squares;
  for (int64_t step = 0; step < 2; ++step) {
    give(kAnna, step, {0, 2}, 2.0F);
    give(kBert, step, {2, 4}, 2.0F);
    rule_->apply_due();
    ASSERT_TRUE(rule_->waiting_norms());
    EXPECT_FALSE(rule_->waiting_norms()->of_tensors()) << "first the gradient's norm";
    wire::NormTotal norm;
    norm.set_step(step);
    norm.set_norm(step == 0 ? 1e9 : 1e-9);
    EXPECT_FALSE(rule_->on_norm_total(norm)) << "then the tensors'";
    ASSERT_TRUE(rule_->waiting_norms());
    EXPECT_TRUE(rule_->waiting_norms()->of_tensors());
    EXPECT_EQ(rule_->waiting_norms()->step(), step);
    squares.push_back(rule_->waiting_norms()->nodes(0).squares());
    EXPECT_FALSE(rule_->on_norm_total(norm)) << "repeated";
    EXPECT_TRUE(rule_->on_norm_total(trust_total(step, std::vector<double>(tensors, 1.0))));
  }
  EXPECT_EQ(rule_->updates(), 2);
  EXPECT_LT(squares[0], 1e-12) << "the gradient is clipped to almost nothing";
  EXPECT_GT(squares[1], 1e-2);
}

// Squares are summed slice by slice, as slices become complete.
TEST_F(WholeStepsTest, NormsDoNotDependOnTheOrderOfSlices) {
  make("lr = 1\nclip-norm = 1\n");
  const auto norms_of_step = [&](int64_t step, std::vector<int> slices, bool one_by_one) {
    ReceivedPush push;
    push.step = step;
    push.range = {0, 4};
    for (const int slice : slices) {
      EXPECT_FALSE(rule_->waiting_norms());
      const auto value = static_cast<float>(1 + slice);
      rule_->take_part(push, slice, {push.range, constant_payload(1024, value)});
      if (one_by_one) rule_->apply_due();
    }
    rule_->apply_due();
    EXPECT_TRUE(rule_->waiting_norms());
    std::map<int64_t, double> squares;
    for (const wire::NormNode& node : rule_->waiting_norms()->nodes()) {
      EXPECT_TRUE(squares.emplace(node.lo(), node.squares()).second);
    }
    EXPECT_EQ(rule_->waiting_norms()->step(), step);
    wire::NormTotal total;
    total.set_step(step);
    total.set_norm(1.0);
    EXPECT_TRUE(rule_->on_norm_total(total));
    return squares;
  };
  // 100 elements of slice 1 are running statistics
  const std::map<int64_t, double> want = {{0, 1024.0 / 16}, {1, 4.0 * (1024 - 100) / 16}};
  EXPECT_EQ(norms_of_step(0, {0, 1}, false), want);
  EXPECT_EQ(norms_of_step(1, {0, 1}, true), want);
  EXPECT_EQ(norms_of_step(2, {1, 0}, true), want);
}

TEST_F(WholeStepsTest, RoundOfLocalStepsAdvancesTheVersionByItsSteps) {
  make("strategy = local:5\nouter-lr = 1\nouter-momentum = 0\n");
  for (const uint64_t who : {kAnna, kBert}) {
    ReceivedPush push;
    push.incarnation = who;
    push.steps = 5;
    push.range = who == kAnna ? Range{0, 2} : Range{2, 4};
    for (const int slice : {0, 1}) {
      rule_->take_part(push, slice, {push.range, constant_payload(1024, 0.5F)});
    }
    rule_->take_push(std::move(push));
  }
  rule_->apply_due();
  EXPECT_EQ(rule_->floor(), 5);
  EXPECT_EQ(rule_->updates(), 1);
  EXPECT_EQ(shard_->version(0), 5);
}

TEST_F(WholeStepsTest, SlowDiskDelaysTheBarrier) {
  make("checkpoint-every = 1\n");
  for (int64_t step = 0; step < 3; ++step) {
    give(kAnna, step, {0, 2});
    give(kBert, step, {2, 4});
    rule_->apply_due();
  }
  EXPECT_EQ(observer_.barriers, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(observer_.waits, std::set<int64_t>{3}) << "two checkpoints are held";
  EXPECT_EQ(version(3), std::nullopt);
  wire::State state;
  state.set_released_barrier(1);
  gate_->on_state(state);
  EXPECT_TRUE(rule_->try_open_barrier());
  EXPECT_EQ(version(3), 3);
}

}  // namespace
}  // namespace pushpull

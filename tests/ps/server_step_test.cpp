// The update of a whole step under backup:B and local:H.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "ps/server/aggregation.h"
#include "ps/server/server.h"
#include "tests/ps/cluster_parts.h"
#include "tests/ps/refusals.h"

namespace pushpull::server_step_test {
namespace {

using testing::ElementsAre;

constexpr int64_t kElements = 3000;  // three slices of 4 KiB; running statistics 2899 to 2998
constexpr uint64_t kCarl = 103;
constexpr Range kShares[] = {{0, 1}, {1, 2}, {2, 4}};  // of four micro-batches

class StepTest : public testing::Test {
 protected:
  void make(const std::string& keys) {
    setup_ = server_setup(job_of(keys), kElements, 0, 1, 3);
    server_ = std::make_unique<Server>(setup_, &observer_);
    tell(0, 0);
  }
  void tell(int64_t released, int64_t evaluated) {
    wire::State state = state_with_workers({kAnna, kBert, kCarl}, released);
    state.set_evaluated_barrier(evaluated);
    server_->on_state(state);
  }
  // Sends the push of share `share`. Numbers count up per worker.
  Checked push(uint64_t who, int64_t step, int share, float value = 1.0F, int steps = 1) {
    Message message = push_message(setup_, who, ++numbers_[who], step, kShares[share], value);
    wire::Push* push = message.header.mutable_exchange()->mutable_push();
    push->set_steps(steps);
    push->clear_losses();
    for (int64_t i = 0; i < kShares[share].size() * steps; ++i) push->add_losses(0.5F);
    return server_->on_data(std::to_string(who), message);
  }
  void choose(int64_t step, std::initializer_list<int> los) {
    wire::Chosen chosen;
    chosen.set_step(step);
    for (const int lo : los) chosen.add_lo(lo);
    server_->on_chosen(chosen);
  }
  // Trains one step with shares 0 and 1.
  void train_step(int64_t step) {
    push(kAnna, step, 0);
    push(kBert, step, 1);
    choose(step, {0, 1});
  }
  std::vector<int64_t> arrived() {
    if (!server_->waiting_arrived()) return {};
    const auto& lo = server_->waiting_arrived()->lo();
    return {lo.begin(), lo.end()};
  }
  Checked pull(uint64_t who, int64_t clock, bool latest, bool barrier = false) {
    server_->take_outgoing();
    Message message = pull_message(who, ++pulls_, clock);
    message.header.mutable_exchange()->mutable_pull()->set_latest(latest);
    message.header.mutable_exchange()->mutable_pull()->set_barrier(barrier);
    return server_->on_data("puller", message);
  }
  // Returns the versions of the slices sent, with -1 for an answer without weights.
  std::vector<int64_t> versions() {
    std::vector<int64_t> out;
    at_barrier_ = false;
    weights_.clear();
    for (const Outgoing& o : server_->take_outgoing()) {
      if (o.to != "puller") continue;
      if (o.message.header.has_status()) out.push_back(-1);
      for (const auto& slice : o.message.header.weights().slices()) out.push_back(slice.version());
      if (o.message.header.weights().at_barrier()) at_barrier_ = true;
      for (const Payload& p : o.message.payloads) {
        const std::vector<float> floats = floats_of(p);
        weights_.insert(weights_.end(), floats.begin(), floats.end());
      }
    }
    return out;
  }

  ListeningObserver observer_;
  ServerSetup setup_;
  std::unique_ptr<Server> server_;
  std::map<uint64_t, int64_t> numbers_;
  int64_t pulls_ = 0;
  bool at_barrier_ = false;
  std::vector<float> weights_;
};

// ---- backup:B ----

TEST_F(StepTest, BackupReportsArrivedPushesAndWaitsForTheSet) {
  make("strategy = backup:1\n");
  EXPECT_TRUE(taken(push(kBert, 0, 1)));
  EXPECT_THAT(arrived(), ElementsAre(1));
  EXPECT_TRUE(taken(push(kAnna, 0, 0)));
  EXPECT_THAT(arrived(), ElementsAre(0, 1));
  EXPECT_EQ(server_->floor(), 0) << "the coordinator has not chosen yet";
  EXPECT_TRUE(observer_.commits.empty());
  choose(0, {0, 1});
  EXPECT_EQ(server_->floor(), 1);
  EXPECT_FALSE(server_->waiting_arrived());
  ASSERT_EQ(observer_.commits.size(), 2U);
  EXPECT_TRUE(observer_.commits[0].counted && observer_.commits[1].counted);
  choose(0, {0, 1});
  EXPECT_EQ(server_->floor(), 1) << "a repeat";
}

TEST_F(StepTest, BackupDividesByTheMicroBatchesOfTheSet) {
  make("strategy = backup:1\n");
  pull(kAnna, 0, true);
  ASSERT_EQ(versions().size(), 3U);
  const float before = weights_[2999];  // the bias, plain SGD at rate 1
  push(kAnna, 0, 0, 2.0F);
  push(kCarl, 0, 2, 10.0F);
  choose(0, {0, 2});
  pull(kAnna, 1, true);
  EXPECT_THAT(versions(), ElementsAre(1, 1, 1));
  EXPECT_EQ(weights_[2999], before - (2.0F + 10.0F) / 3.0F);
  EXPECT_EQ(weights_[2950], 0.9F * 0.25F + 0.1F * 4.0F) << "a running statistic";
}

TEST_F(StepTest, BackupDropsALatePushOnceAndAcknowledgesIt) {
  make("strategy = backup:1\n");
  train_step(0);
  EXPECT_TRUE(taken(push(kCarl, 0, 2, 1e30F)));
  ASSERT_EQ(observer_.commits.size(), 3U);
  EXPECT_FALSE(observer_.commits[2].counted);
  EXPECT_TRUE(observer_.commits[2].dropped);
  --numbers_[kCarl];
  EXPECT_TRUE(taken(push(kCarl, 0, 2, 1e30F))) << "a repeat";
  EXPECT_EQ(observer_.commits.size(), 3U);
  pull(kCarl, 1, true);
  EXPECT_THAT(versions(), ElementsAre(1, 1, 1));
  EXPECT_LT(weights_[0], 10.0F) << "the late push is not applied";
}

TEST_F(StepTest, BackupDropsACompletePushThatIsNotChosen) {
  make("strategy = backup:1\n");
  push(kAnna, 0, 0);
  push(kBert, 0, 1);
  push(kCarl, 0, 2, 1e30F);
  choose(0, {0, 1});
  ASSERT_EQ(observer_.commits.size(), 3U);
  EXPECT_TRUE(observer_.commits[2].dropped);
  EXPECT_EQ(observer_.commits[2].incarnation, kCarl);
}

TEST_F(StepTest, BackupDoesNotCountADuplicateShareAsDropped) {
  make("strategy = backup:1\n");
  push(kAnna, 0, 0);
  push(kBert, 0, 0);  // kBert has taken the share over
  push(kBert, 0, 1);
  choose(0, {0, 1});
  push(kCarl, 0, 1);  // another duplicate, late
  for (const Commit& commit : observer_.commits) EXPECT_FALSE(commit.dropped);
  EXPECT_EQ(observer_.commits.size(), 3U);
}

TEST_F(StepTest, BackupIgnoresASetOfMissingPushes) {
  make("strategy = backup:1\n");
  push(kAnna, 0, 0);
  choose(0, {0, 2});
  choose(0, {});
  choose(1, {0});
  EXPECT_EQ(server_->floor(), 0);
  EXPECT_THAT(arrived(), ElementsAre(0));
}

TEST_F(StepTest, BackupWaitsForTheNormOfTheChosenSum) {
  make("strategy = backup:1\nclip-norm = 1\n");
  train_step(0);
  ASSERT_TRUE(server_->waiting_norms());
  EXPECT_EQ(server_->floor(), 0);
  push(kCarl, 0, 2);
  EXPECT_TRUE(observer_.commits.back().dropped) << "the set is already fixed";
  wire::NormTotal total;
  total.set_norm(1.0);
  server_->on_norm_total(total);
  EXPECT_EQ(server_->floor(), 1);
}

TEST_F(StepTest, BackupWaitsForTheTrustRatiosOfTheChosenSum) {
  make("strategy = backup:1\noptimizer = lamb\nclip-norm = 1\n");
  train_step(0);
  ASSERT_TRUE(server_->waiting_norms());
  EXPECT_FALSE(server_->waiting_norms()->of_tensors());
  wire::NormTotal total;
  total.set_norm(1.0);
  server_->on_norm_total(total);
  EXPECT_EQ(server_->floor(), 0);
  ASSERT_TRUE(server_->waiting_norms());
  EXPECT_TRUE(server_->waiting_norms()->of_tensors());
  total.set_of_tensors(true);
  for (size_t t = 0; t < setup_.table.tensors.size(); ++t) total.add_trust(0.5);
  server_->on_norm_total(total);
  EXPECT_EQ(server_->floor(), 1);
}

TEST_F(StepTest, BackupGivesTheNewestVersionToALateWorker) {
  make("strategy = backup:1\n");
  for (int64_t step = 0; step < 3; ++step) train_step(step);
  pull(kCarl, 1, true);
  EXPECT_THAT(versions(), ElementsAre(3, 3, 3));
  pull(kCarl, 4, true);
  EXPECT_TRUE(versions().empty()) << "version 4 is not ready";
  train_step(3);
  EXPECT_THAT(versions(), ElementsAre(4, 4, 4));
  pull(kCarl, 3, false);
  EXPECT_THAT(versions(), ElementsAre(3, 3, 3)) << "the exact version";
  pull(kCarl, 2, false);
  EXPECT_THAT(versions(), ElementsAre(-1)) << "the version is gone: the worker asks again at once";
}

TEST_F(StepTest, BackupKeepsTheWeightsOfAnEvaluationUntilItIsComplete) {
  make("strategy = backup:1\neval-every = 2\n");
  for (int64_t step = 0; step < 4; ++step) train_step(step);
  EXPECT_EQ(server_->floor(), 4);
  EXPECT_EQ(server_->open_barrier(), 2) << "barrier 4 waits";
  pull(kCarl, 1, true);
  EXPECT_THAT(versions(), ElementsAre(3, 3, 3)) << "a late worker must not wait for barrier 4";
  pull(kCarl, 2, false, true);
  EXPECT_EQ(versions().size(), 3U);
  EXPECT_TRUE(at_barrier_);
  pull(kAnna, 4, true);
  EXPECT_TRUE(versions().empty());
  tell(0, 2);
  EXPECT_THAT(versions(), ElementsAre(4, 4, 4));
  EXPECT_EQ(server_->open_barrier(), 4);
  pull(kCarl, 2, false, true);
  EXPECT_EQ(versions().size(), 3U);
  EXPECT_FALSE(at_barrier_) << "the barrier is past";
}

TEST_F(StepTest, BackupKeepsTheWeightsOfAnEvaluationAcrossACheckpoint) {
  make("strategy = backup:1\neval-every = 4\ncheckpoint-every = 5\n");
  for (int64_t step = 0; step < 6; ++step) train_step(step);
  EXPECT_EQ(server_->floor(), 6);
  pull(kCarl, 4, false, true);
  EXPECT_EQ(versions().size(), 3U);
  EXPECT_TRUE(at_barrier_);
}

// ---- local:H ----

TEST_F(StepTest, LocalAdvancesByRoundsWithAShortLastOne) {
  make("strategy = local:4\nsteps = 10\nouter-lr = 1\nouter-momentum = 0\n");
  EXPECT_FALSE(taken(push(kAnna, 0, 0, 1.0F, 1))) << "a round is four steps";
  EXPECT_FALSE(taken(push(kAnna, 1, 0, 1.0F, 3))) << "no round starts there";
  for (const auto& [step, steps] : {std::pair{0, 4}, {4, 4}, {8, 2}}) {
    EXPECT_TRUE(taken(push(kAnna, step, 0, 1.0F, steps)));
    EXPECT_TRUE(taken(push(kBert, step, 1, 1.0F, steps)));
    EXPECT_EQ(server_->floor(), step);
    EXPECT_TRUE(taken(push(kCarl, step, 2, 1.0F, steps)));
    EXPECT_EQ(server_->floor(), step + steps);
    EXPECT_EQ(observer_.commits.back().steps, steps);
  }
  EXPECT_EQ(server_->stats().updates(), 3);
  EXPECT_EQ(observer_.barriers.back(), 10);
}

TEST_F(StepTest, LocalAnswersAReturningWorkerWithThePreviousRound) {
  make("strategy = local:4\nsteps = 10\n");
  for (const uint64_t who : {kAnna, kBert, kCarl})
    push(who, 0, static_cast<int>(who - kAnna), 1, 4);
  pull(kAnna, 4, false);
  EXPECT_THAT(versions(), ElementsAre(4, 4, 4));
  pull(kAnna, 0, false);
  EXPECT_THAT(versions(), ElementsAre(0, 0, 0));
}

TEST_F(StepTest, LocalAppliesTheOuterOptimizerToTheMeanChange) {
  make(
      "strategy = local:2\nouter-lr = 0.5\nouter-momentum = 0.5\nweight-decay = 0.1\n"
      "clip-norm = 0.001\n");
  pull(kAnna, 0, true);
  ASSERT_EQ(versions().size(), 3U);
  const float weight = weights_[0];
  const float running = weights_[2950];
  // A value is micro-batches times change: the mean change is (1 + 2 + 5) / 4 = 2 in both rounds.
  float expected = weight;
  float buffer = 0.0F;
  for (const int64_t step : {0, 2}) {
    push(kAnna, step, 0, 1.0F, 2);
    push(kBert, step, 1, 2.0F, 2);
    push(kCarl, step, 2, 5.0F, 2);
    buffer = 0.5F * buffer + 2.0F;
    expected -= 0.5F * (2.0F + 0.5F * buffer);
  }
  pull(kAnna, 4, true);
  EXPECT_THAT(versions(), ElementsAre(4, 4, 4));
  EXPECT_FLOAT_EQ(weights_[0], expected) << "no weight decay, no clipping";
  EXPECT_FLOAT_EQ(weights_[2950], running - 4.0F) << "running statistics move in the workers";
  EXPECT_FALSE(server_->waiting_norms());
}

TEST_F(StepTest, LocalTakesEachShareOnce) {
  make("strategy = local:2\nouter-lr = 1\nouter-momentum = 0\n");
  push(kAnna, 0, 0, 1.0F, 2);
  push(kBert, 0, 0, 1.0F, 2);  // kBert has taken the share over
  EXPECT_TRUE(observer_.commits[0].counted);
  EXPECT_FALSE(observer_.commits[1].counted);
  push(kBert, 0, 1, 1.0F, 2);
  push(kCarl, 0, 2, 1.0F, 2);
  EXPECT_EQ(server_->floor(), 2);
}

TEST_F(StepTest, RoundHasOneLossPerMicroBatchAndStep) {
  make("strategy = local:2\n");
  Message message = push_message(setup_, kAnna, 1, 0, kShares[2], 1.0F);
  wire::Push* push = message.header.mutable_exchange()->mutable_push();
  push->set_steps(2);
  EXPECT_EQ(reason_of(server_->on_data("anna", message)), "push-losses")
      << "two losses instead of four";
  push->clear_losses();
  EXPECT_TRUE(taken(server_->on_data("anna", message))) << "no losses, as to other servers";
}

TEST(ServerOptimizer, IsTheOuterOptimizerUnderLocalSteps) {
  EXPECT_EQ(server_optimizer(job_of("optimizer = adam\n")).kind, OptimizerKind::kAdam);
  const Job job = job_of("optimizer = adam\nstrategy = local:4\nweight-decay = 0.1\n");
  EXPECT_EQ(server_optimizer(job).kind, OptimizerKind::kNesterov);
  EXPECT_EQ(server_optimizer(job).momentum, 0.9);
  EXPECT_EQ(server_optimizer(job).weight_decay, 0.0);
  EXPECT_EQ(server_optimizer(job_of("strategy = local:4\nouter-momentum = 0\n")).kind,
            OptimizerKind::kSgd);
}

}  // namespace
}  // namespace pushpull::server_step_test

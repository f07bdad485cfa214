#include <gtest/gtest.h>

#include <cmath>

#include "tests/ps/refusals.h"
#include "tests/ps/server_fixture.h"

namespace pushpull {
namespace {

// ---- sync ----

TEST_F(ServerTest, SyncAdvancesWhenTheWholeStepIsIn) {
  make("strategy = sync\n");
  EXPECT_TRUE(taken(pull(kAnna, 1, 0)));
  EXPECT_EQ(slices_to(kAnna), (std::vector<std::pair<int, int64_t>>{{0, 0}, {1, 0}, {2, 0}}));
  EXPECT_TRUE(taken(push(kAnna, 1, 0, kFirst)));
  EXPECT_EQ(server_->floor(), 0);
  EXPECT_TRUE(taken(pull(kAnna, 2, 1)));
  EXPECT_TRUE(server_->take_outgoing().empty()) << "step 0 is incomplete";
  EXPECT_TRUE(taken(push(kBert, 1, 0, kSecond)));
  EXPECT_EQ(server_->floor(), 1);
  EXPECT_EQ(slices_to(kAnna), (std::vector<std::pair<int, int64_t>>{{0, 1}, {1, 1}, {2, 1}}));
  ASSERT_EQ(observer_.commits.size(), 2U);
  EXPECT_TRUE(observer_.commits[1].counted);
  EXPECT_EQ(observer_.commits[1].range, kSecond);
  EXPECT_EQ(observer_.commits[1].losses, (std::vector<float>{0.5F, 0.5F}));
}

TEST_F(ServerTest, SyncMovesTheWeightsByTheMeanGradient) {
  make("strategy = sync\nlr = 0.5\n");
  pull(kAnna, 1, 0);
  const float before = server_->take_outgoing()[0].message.payloads[0].floats()[0];
  push(kAnna, 1, 0, kFirst, 3.0F);
  push(kBert, 1, 0, kSecond, 5.0F);
  pull(kAnna, 2, 1);
  const float after = server_->take_outgoing()[0].message.payloads[0].floats()[0];
  EXPECT_FLOAT_EQ(after, before - 0.5F * (3.0F + 5.0F) / 4.0F);
}

TEST_F(ServerTest, SyncKeepsThePreviousVersionForAReplacement) {
  make("strategy = sync\n");
  push(kAnna, 1, 0, kFirst);
  push(kBert, 1, 0, kSecond);
  EXPECT_TRUE(taken(pull(kBert, 1, 0)));
  EXPECT_EQ(slices_to(kBert), (std::vector<std::pair<int, int64_t>>{{0, 0}, {1, 0}, {2, 0}}));
}

TEST_F(ServerTest, SyncAnswersSliceBySlice) {
  make("strategy = sync\n");
  push(kBert, 1, 0, kSecond);
  pull(kBert, 1, 1);
  Message whole = push_message(setup_, kAnna, 1, 0, kFirst, 1.0F);
  Message first = whole;  // only the part of slice 0
  wire::Push* push = first.header.mutable_exchange()->mutable_push();
  push->mutable_parts()->DeleteSubrange(1, 2);
  first.payloads.resize(1);
  EXPECT_TRUE(taken(server_->on_data("anna", first)));
  EXPECT_EQ(slices_to(kBert), (std::vector<std::pair<int, int64_t>>{{0, 1}}));
  EXPECT_EQ(server_->floor(), 0);
  EXPECT_TRUE(taken(server_->on_data("anna", whole))) << "a repeat with the missing parts";
  EXPECT_EQ(slices_to(kBert), (std::vector<std::pair<int, int64_t>>{{1, 1}, {2, 1}}));
  EXPECT_EQ(server_->floor(), 1);
}

TEST_F(ServerTest, LargeAnswerIsSplitIntoMessages) {
  // A message holds at most 65,536 payloads. The answer has 1,000 slices of 4 KiB.
  setup_ = server_setup(job_of("strategy = async\n"), 1000 * kBlockElements);
  make_from_setup();
  EXPECT_TRUE(taken(pull(kAnna, 1, 0)));
  EXPECT_TRUE(taken(pull(kAnna, 1, 0)));
  std::vector<int> slices;
  for (const Outgoing& o : server_->take_outgoing()) {
    EXPECT_LE(o.message.payloads.size(), 256U);
    EXPECT_EQ(o.message.header.weights().pull(), 1);
    for (const auto& s : o.message.header.weights().slices()) slices.push_back(s.slice());
  }
  ASSERT_EQ(slices.size(), 2000U) << "the pull was sent twice";
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(slices[static_cast<size_t>(i)], i);
}

TEST_F(ServerTest, SyncRefusesAPushOfALaterStep) {
  make("strategy = sync\n");
  EXPECT_FALSE(taken(push(kAnna, 1, 1, kFirst)));
  EXPECT_TRUE(taken(push(kAnna, 1, 0, kFirst)));
}

TEST_F(ServerTest, PushCountsOnceHoweverOftenItIsSent) {
  make("strategy = sync\n");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(taken(push(kAnna, 1, 0, kFirst, 1.0F)));
  EXPECT_TRUE(taken(push(kAnna, 2, 0, kFirst, 100.0F))) << "another number, the same micro-batches";
  EXPECT_TRUE(taken(push(kBert, 1, 0, kFirst, 100.0F))) << "from another worker";
  EXPECT_EQ(server_->floor(), 0);
  EXPECT_TRUE(taken(push(kBert, 2, 0, kSecond, 1.0F)));
  EXPECT_EQ(server_->floor(), 1);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(taken(push(kBert, 2, 0, kSecond, 100.0F)));
  EXPECT_EQ(server_->floor(), 1);
  std::vector<bool> counted;
  for (const Commit& c : observer_.commits) counted.push_back(c.counted);
  EXPECT_EQ(counted, (std::vector<bool>{true, false, false, true}));
  pull(kAnna, 1, 1);
  const auto out = server_->take_outgoing();
  Server calm(setup_, nullptr);
  calm.on_state(state_with_workers({kAnna, kBert}));
  calm.on_data("anna", push_message(setup_, kAnna, 1, 0, kFirst, 1.0F));
  calm.on_data("bert", push_message(setup_, kBert, 1, 0, kSecond, 1.0F));
  calm.on_data("anna", pull_message(kAnna, 1, 1));
  EXPECT_EQ(floats_of(out[0].message.payloads[2]),
            floats_of(calm.take_outgoing()[0].message.payloads[2]));
}

TEST_F(ServerTest, AcknowledgedPushIsAnsweredOnceItIsComplete) {
  make("");
  Message whole = push_message(setup_, kAnna, 1, 0, kFirst, 1.0F);
  wire::Push* push = whole.header.mutable_exchange()->mutable_push();
  push->set_acknowledge(true);
  Message first = whole;
  first.header.mutable_exchange()->mutable_push()->mutable_parts()->DeleteSubrange(1, 2);
  first.payloads.resize(1);
  ASSERT_TRUE(taken(server_->on_data("anna", first)));
  EXPECT_TRUE(server_->take_outgoing().empty());
  ASSERT_TRUE(taken(server_->on_data("anna", whole)));
  const auto sent = server_->take_outgoing();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].to, "anna");
  EXPECT_EQ(sent[0].message.header.status().pushes_through(), 1);
  EXPECT_EQ(sent[0].message.header.status().pull(), 0);
}

TEST_F(ServerTest, SyncWithClippingWaitsForTheNormOfAllServers) {
  make("strategy = sync\nclip-norm = 1\n", 0, 1);
  push(kAnna, 1, 0, kFirst, 4.0F);
  EXPECT_FALSE(server_->waiting_norms());
  push(kBert, 1, 0, kSecond, 4.0F);
  ASSERT_TRUE(server_->waiting_norms());
  EXPECT_EQ(server_->waiting_norms()->step(), 0);
  double squares = 0;
  for (const auto& node : server_->waiting_norms()->nodes()) squares += node.squares();
  EXPECT_DOUBLE_EQ(squares, 4.0 * (kServerElements - 100)) << "the mean gradient is 2";
  EXPECT_EQ(server_->floor(), 0);
  pull(kAnna, 1, 0);
  const float before = server_->take_outgoing()[0].message.payloads[0].floats()[0];
  wire::NormTotal total;
  total.set_step(7);
  total.set_norm(1.0);
  server_->on_norm_total(total);
  EXPECT_EQ(server_->floor(), 0) << "the norm belongs to another step";
  total.set_step(0);
  total.set_norm(200.0);
  server_->on_norm_total(total);
  EXPECT_EQ(server_->floor(), 1);
  EXPECT_FALSE(server_->waiting_norms());
  server_->on_norm_total(total);
  EXPECT_EQ(server_->floor(), 1) << "a repeat";
  pull(kAnna, 2, 1);
  const float after = server_->take_outgoing()[0].message.payloads[0].floats()[0];
  EXPECT_NEAR(after, before - 2.0F / 200.0F, 1e-6);
}

// ---- ssp ----

TEST_F(ServerTest, SspPullWaitsForTheSlowestWorker) {
  make("strategy = ssp:2\n");
  for (int64_t step = 0; step < 3; ++step) {
    EXPECT_TRUE(taken(pull(kAnna, step + 1, step)));
    EXPECT_TRUE(answered(kAnna)) << "clock " << step;
    push(kAnna, step + 1, step, kFirst);
  }
  EXPECT_TRUE(taken(pull(kAnna, 4, 3)));
  EXPECT_FALSE(answered(kAnna)) << "three clocks ahead of kBert";
  push(kBert, 1, 0, kSecond);
  EXPECT_TRUE(answered(kAnna));
  EXPECT_EQ(server_->stats().clock_gap_max(), 2);
}

TEST_F(ServerTest, SspAppliesEachPushAndCountsItsStaleness) {
  make("strategy = ssp:2\nlr = 1\n");
  pull(kAnna, 1, 0);
  const float before = server_->take_outgoing()[0].message.payloads[0].floats()[0];
  push(kAnna, 1, 0, kFirst, 4.0F);
  Message late = push_message(setup_, kBert, 1, 0, kSecond, 4.0F);
  server_->on_data("bert", late);
  pull(kAnna, 2, 1);
  const auto out = server_->take_outgoing();
  EXPECT_FLOAT_EQ(out[0].message.payloads[0].floats()[0], before - 0.5F * 2.0F - 0.5F * 2.0F);
  EXPECT_EQ(out[0].message.header.weights().slices(0).version(), 2);
  const wire::Stats stats = server_->stats();
  EXPECT_EQ(stats.updates(), 2);
  EXPECT_EQ(stats.staleness().at(0), 1);
  EXPECT_EQ(stats.staleness().at(1), 1);
  EXPECT_EQ(stats.floor(), 1);
}

// ---- async ----

TEST_F(ServerTest, AsyncAnswersAtOnce) {
  make("strategy = async\n");
  for (int64_t step = 0; step < 9; ++step) {
    EXPECT_TRUE(taken(pull(kAnna, step + 1, step)));
    EXPECT_TRUE(answered(kAnna)) << step;
    push(kAnna, step + 1, step, kFirst);
  }
}

TEST_F(ServerTest, AsyncWaitsAtABarrierForAllEarlierSteps) {
  make("strategy = async\neval-every = 2\n");
  push(kAnna, 1, 0, kFirst);
  push(kAnna, 2, 1, kFirst);
  pull(kAnna, 1, 2);
  EXPECT_FALSE(answered(kAnna));
  push(kBert, 1, 0, kSecond);
  EXPECT_TRUE(observer_.barriers.empty());
  push(kBert, 2, 1, kSecond);
  EXPECT_TRUE(answered(kAnna));
  EXPECT_EQ(observer_.barriers, (std::vector<int64_t>{2}));
}

TEST_F(ServerTest, WeightsOfABarrierStayWhileTrainingContinues) {
  make("strategy = async\neval-every = 1\n");
  push(kAnna, 1, 0, kFirst);
  push(kBert, 1, 0, kSecond);
  const auto barrier_weights = [&](int64_t number) {
    Message m = pull_message(kBert, number, 1);
    m.header.mutable_exchange()->mutable_pull()->set_barrier(true);
    server_->on_data("bert", m);
    return floats_of(server_->take_outgoing()[0].message.payloads[0]);
  };
  const std::vector<float> at_barrier = barrier_weights(1);
  push(kAnna, 2, 1, kFirst);
  EXPECT_EQ(barrier_weights(2), at_barrier);
  pull(kBert, 3, 1);
  EXPECT_NE(floats_of(server_->take_outgoing()[0].message.payloads[0]), at_barrier);
}

TEST_F(ServerTest, AsyncClipsEachPushByItsOwnNorm) {
  make("strategy = async\nclip-norm = 1\nlr = 1\n");
  pull(kAnna, 1, 0);
  const float before = server_->take_outgoing()[0].message.payloads[0].floats()[0];
  Message m = push_message(setup_, kAnna, 1, 0, kFirst, 2.0F);
  m.header.mutable_exchange()->mutable_push()->set_squares(10000.0);
  server_->on_data("anna", m);
  pull(kAnna, 2, 1);
  const float after = server_->take_outgoing()[0].message.payloads[0].floats()[0];
  EXPECT_NEAR(after, before - 0.5F * 1.0F / 100.0F, 1e-6);
}

TEST_F(ServerTest, LeasesComeWithAnswersAndAWaitingWorkerGetsOneLater) {
  make("strategy = async\n");
  Message wait = pull_message(kAnna, 1, 0);
  wait.header.mutable_exchange()->mutable_pull()->set_lease_only(true);
  wait.header.mutable_exchange()->mutable_pull()->set_newest_lease(1);
  observer_.to_anna.emplace_back().set_number(1);
  EXPECT_TRUE(taken(server_->on_data("anna", wait)));
  EXPECT_TRUE(server_->take_outgoing().empty()) << "kAnna already holds that lease";
  observer_.to_anna.emplace_back().set_number(2);
  observer_.to_anna.back().set_step(3);
  server_->offer_leases();
  const auto out = server_->take_outgoing();
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].to, "anna");
  ASSERT_EQ(out[0].message.header.status().leases_size(), 2);
  EXPECT_EQ(out[0].message.header.status().leases(1).step(), 3);
  Message pull = pull_message(kAnna, 2, 3);
  pull.header.mutable_exchange()->mutable_pull()->set_want_lease(true);
  server_->on_data("anna", pull);
  EXPECT_EQ(server_->take_outgoing()[0].message.header.weights().leases_size(), 2);
}

// ---- repeated requests ----

TEST_F(ServerTest, RepeatedPullIsAnsweredAgainOrToldToWait) {
  make("strategy = sync\n");
  pull(kAnna, 1, 0);
  EXPECT_TRUE(answered(kAnna));
  pull(kAnna, 1, 0);
  const auto sent = server_->take_outgoing();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_TRUE(sent[0].message.header.has_status()) << "the answer may still be in flight";
  push(kAnna, 1, 0, kFirst);
  pull(kAnna, 2, 1);
  EXPECT_TRUE(server_->take_outgoing().empty());
  pull(kAnna, 2, 1);
  const auto out = server_->take_outgoing();
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].message.header.status().pull(), 2);
  EXPECT_EQ(out[0].message.header.status().pushes_through(), 1);
  EXPECT_FALSE(out[0].message.header.status().not_ready());
}

TEST_F(ServerTest, SupersededPullIsNotAnswered) {
  make("strategy = async\n");
  pull(kAnna, 5, 1);
  server_->take_outgoing();
  EXPECT_TRUE(taken(pull(kAnna, 4, 0)));
  EXPECT_TRUE(server_->take_outgoing().empty());
}

TEST_F(ServerTest, AnswerGoesToTheWorkersCurrentConnection) {
  make("strategy = sync\n");
  push(kAnna, 1, 0, kFirst);
  server_->on_data("old connection", pull_message(kAnna, 1, 1));
  server_->on_data("new connection", pull_message(kAnna, 1, 1));
  server_->take_outgoing();
  push(kBert, 1, 0, kSecond);
  const auto out = server_->take_outgoing();
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].to, "new connection");
}

TEST_F(ServerTest, UnknownWorkerIsAskedToRetry) {
  make("strategy = sync\n");
  EXPECT_TRUE(taken(server_->on_data("x", push_message(setup_, 999, 1, 0, kFirst, 1.0F))));
  EXPECT_TRUE(server_->take_outgoing()[0].message.header.status().not_ready());
  push(kAnna, 1, 0, kFirst);
  server_->on_state(state_with_workers({kBert}));  // kAnna is lost
  EXPECT_TRUE(taken(push(kAnna, 2, 0, kSecond)));
  EXPECT_EQ(server_->floor(), 0);
}

}  // namespace
}  // namespace pushpull

#include "ps/server/server.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "tests/ps/cluster_parts.h"

namespace pushpull {
namespace {

constexpr int64_t kElements = 3000;  // three slices of 4 KiB
constexpr Range kFirst{0, 2};        // the two shares of four micro-batches
constexpr Range kSecond{2, 4};

class Observer : public TrainingObserver {
 public:
  void on_commit(const Commit& commit) override { commits.push_back(commit); }
  void on_barrier_open(int64_t step) override { barriers.push_back(step); }
  void on_checkpoint_waits(int64_t step) override { waits.insert(step); }
  std::vector<wire::Lease> leases(uint64_t incarnation) override {
    return incarnation == kAnna ? to_anna : std::vector<wire::Lease>{};
  }
  std::vector<Commit> commits;
  std::vector<int64_t> barriers;
  std::set<int64_t> waits;  // checkpoints that could not be taken yet
  std::vector<wire::Lease> to_anna;
};

class ServerTest : public testing::Test {
 protected:
  void make(const std::string& keys, int rank = 0, int servers = 1) {
    setup_ = server_setup(job_of(keys), kElements, rank, servers);
    make_from_setup();
  }
  void make_from_setup() {
    server_ = std::make_unique<Server>(setup_, &observer_);
    server_->on_state(state_with_workers({kAnna, kBert}));
  }
  Verdict push(uint64_t who, int64_t number, int64_t step, Range share, float value = 1.0F) {
    return server_->on_data(peer_of(who), push_message(setup_, who, number, step, share, value));
  }
  Verdict pull(uint64_t who, int64_t number, int64_t clock) {
    return server_->on_data(peer_of(who), pull_message(who, number, clock));
  }
  static PeerId peer_of(uint64_t who) { return who == kAnna ? "anna" : "bert"; }
  // All slices that have been sent to `who` since the last call, with their versions.
  std::vector<std::pair<int, int64_t>> slices_to(uint64_t who) {
    std::vector<std::pair<int, int64_t>> out;
    std::vector<Outgoing> others;
    for (Outgoing& o : server_->take_outgoing()) {
      for (const auto& s : o.message.header.weights().slices()) {
        if (o.to == peer_of(who)) out.emplace_back(s.slice(), s.version());
      }
    }
    return out;
  }
  bool answered(uint64_t who) { return slices_to(who).size() == 3; }

  Observer observer_;
  ServerSetup setup_;
  std::unique_ptr<Server> server_;
};

// ---- sync ----

TEST_F(ServerTest, SyncMovesOnWhenTheWholeStepIsIn) {
  make("strategy = sync\n");
  EXPECT_TRUE(pull(kAnna, 1, 0));
  EXPECT_EQ(slices_to(kAnna), (std::vector<std::pair<int, int64_t>>{{0, 0}, {1, 0}, {2, 0}}));
  EXPECT_TRUE(push(kAnna, 1, 0, kFirst));
  EXPECT_EQ(server_->floor(), 0);
  EXPECT_TRUE(pull(kAnna, 2, 1));
  EXPECT_TRUE(server_->take_outgoing().empty()) << "step 0 is not whole yet";
  EXPECT_TRUE(push(kBert, 1, 0, kSecond));
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

TEST_F(ServerTest, SyncStillHasTheVersionBeforeForAReplacement) {
  make("strategy = sync\n");
  push(kAnna, 1, 0, kFirst);
  push(kBert, 1, 0, kSecond);
  EXPECT_TRUE(pull(kBert, 1, 0));
  EXPECT_EQ(slices_to(kBert), (std::vector<std::pair<int, int64_t>>{{0, 0}, {1, 0}, {2, 0}}));
}

TEST_F(ServerTest, SyncAnswersSliceBySlice) {
  make("strategy = sync\n");
  push(kBert, 1, 0, kSecond);
  pull(kBert, 1, 1);
  Message whole = push_message(setup_, kAnna, 1, 0, kFirst, 1.0F);
  Message first = whole;  // the part of slice 0 alone
  wire::Push* push = first.header.mutable_exchange()->mutable_push();
  push->mutable_parts()->DeleteSubrange(1, 2);
  first.payloads.resize(1);
  EXPECT_TRUE(server_->on_data("anna", first));
  EXPECT_EQ(slices_to(kBert), (std::vector<std::pair<int, int64_t>>{{0, 1}}));
  EXPECT_EQ(server_->floor(), 0);
  EXPECT_TRUE(server_->on_data("anna", whole)) << "repeated with the rest";
  EXPECT_EQ(slices_to(kBert), (std::vector<std::pair<int, int64_t>>{{1, 1}, {2, 1}}));
  EXPECT_EQ(server_->floor(), 1);
}

TEST_F(ServerTest, ALargeAnswerIsCutIntoMessages) {
  // one message holds 65,536 payloads at most, and this is 1,000 slices of 4 KiB
  setup_ = server_setup(job_of("strategy = async\n"), 1000 * kBlockElements);
  make_from_setup();
  EXPECT_TRUE(pull(kAnna, 1, 0));
  EXPECT_TRUE(pull(kAnna, 1, 0));
  std::vector<int> slices;
  for (const Outgoing& o : server_->take_outgoing()) {
    EXPECT_LE(o.message.payloads.size(), 256U);
    EXPECT_EQ(o.message.header.weights().pull(), 1);
    for (const auto& s : o.message.header.weights().slices()) slices.push_back(s.slice());
  }
  ASSERT_EQ(slices.size(), 2000U) << "asked twice";
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(slices[static_cast<size_t>(i)], i);
}

TEST_F(ServerTest, AStepInTheFutureIsRefusedInSync) {
  make("strategy = sync\n");
  EXPECT_FALSE(push(kAnna, 1, 1, kFirst));
  EXPECT_TRUE(push(kAnna, 1, 0, kFirst));
}

TEST_F(ServerTest, APushCountsOnceHoweverOftenAndByWhomItIsSent) {
  make("strategy = sync\n");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(push(kAnna, 1, 0, kFirst, 1.0F));
  EXPECT_TRUE(push(kAnna, 2, 0, kFirst, 100.0F)) << "another number, the same micro-batches";
  EXPECT_TRUE(push(kBert, 1, 0, kFirst, 100.0F)) << "another worker";
  EXPECT_EQ(server_->floor(), 0);
  EXPECT_TRUE(push(kBert, 2, 0, kSecond, 1.0F));
  EXPECT_EQ(server_->floor(), 1);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(push(kBert, 2, 0, kSecond, 100.0F));
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

TEST_F(ServerTest, AnAcknowledgedPushIsAnsweredOnceItIsComplete) {
  make("");
  Message whole = push_message(setup_, kAnna, 1, 0, kFirst, 1.0F);
  wire::Push* push = whole.header.mutable_exchange()->mutable_push();
  push->set_acknowledge(true);
  Message first = whole;
  first.header.mutable_exchange()->mutable_push()->mutable_parts()->DeleteSubrange(1, 2);
  first.payloads.resize(1);
  ASSERT_TRUE(server_->on_data("anna", first));
  EXPECT_TRUE(server_->take_outgoing().empty());
  ASSERT_TRUE(server_->on_data("anna", whole));
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
  EXPECT_DOUBLE_EQ(squares, 4.0 * (kElements - 100)) << "the mean gradient is 2";
  EXPECT_EQ(server_->floor(), 0);
  pull(kAnna, 1, 0);
  const float before = server_->take_outgoing()[0].message.payloads[0].floats()[0];
  wire::NormTotal total;
  total.set_step(7);
  total.set_norm(1.0);
  server_->on_norm_total(total);
  EXPECT_EQ(server_->floor(), 0) << "the norm of another step";
  total.set_step(0);
  total.set_norm(200.0);
  server_->on_norm_total(total);
  EXPECT_EQ(server_->floor(), 1);
  EXPECT_FALSE(server_->waiting_norms());
  server_->on_norm_total(total);
  EXPECT_EQ(server_->floor(), 1) << "said twice";
  pull(kAnna, 2, 1);
  const float after = server_->take_outgoing()[0].message.payloads[0].floats()[0];
  EXPECT_NEAR(after, before - 2.0F / 200.0F, 1e-6);
}

// ---- ssp ----

TEST_F(ServerTest, SspPullWaitsForTheSlowestWorker) {
  make("strategy = ssp:2\n");
  for (int64_t step = 0; step < 3; ++step) {
    EXPECT_TRUE(pull(kAnna, step + 1, step));
    EXPECT_TRUE(answered(kAnna)) << "clock " << step;
    push(kAnna, step + 1, step, kFirst);
  }
  EXPECT_TRUE(pull(kAnna, 4, 3));
  EXPECT_FALSE(answered(kAnna)) << "three clocks ahead of the other";
  push(kBert, 1, 0, kSecond);
  EXPECT_TRUE(answered(kAnna));
  EXPECT_EQ(server_->stats().clock_gap_max(), 2);
}

TEST_F(ServerTest, SspAppliesEachPushAndMeasuresItsStaleness) {
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
    EXPECT_TRUE(pull(kAnna, step + 1, step));
    EXPECT_TRUE(answered(kAnna)) << step;
    push(kAnna, step + 1, step, kFirst);
  }
}

TEST_F(ServerTest, AsyncWaitsAtABarrierForEverythingBeforeIt) {
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

TEST_F(ServerTest, ABarriersWeightsStayWhileOthersGoOn) {
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

TEST_F(ServerTest, LeasesComeWithTheAnswerAndAWaiterGetsOneWhenThereIsOne) {
  make("strategy = async\n");
  Message wait = pull_message(kAnna, 1, 0);
  wait.header.mutable_exchange()->mutable_pull()->set_lease_only(true);
  wait.header.mutable_exchange()->mutable_pull()->set_newest_lease(1);
  observer_.to_anna.emplace_back().set_number(1);
  EXPECT_TRUE(server_->on_data("anna", wait));
  EXPECT_TRUE(server_->take_outgoing().empty()) << "anna has that one already";
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

// ---- requests that come again ----

TEST_F(ServerTest, ARepeatedPullIsAnsweredAgainOrToldToWait) {
  make("strategy = sync\n");
  pull(kAnna, 1, 0);
  EXPECT_TRUE(answered(kAnna));
  pull(kAnna, 1, 0);
  const auto told = server_->take_outgoing();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_TRUE(told[0].message.header.has_status()) << "the answer may still be on its way";
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

TEST_F(ServerTest, AnOvertakenPullIsNotAnswered) {
  make("strategy = async\n");
  pull(kAnna, 5, 1);
  server_->take_outgoing();
  EXPECT_TRUE(pull(kAnna, 4, 0));
  EXPECT_TRUE(server_->take_outgoing().empty());
}

TEST_F(ServerTest, AnAnswerGoesWhereTheWorkerIsNow) {
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

// ---- barriers and snapshots ----

Message fetch_message(int slice, int64_t step) {
  Message message;
  wire::Fetch* fetch = message.header.mutable_fetch();
  fetch->mutable_sender()->set_run(kRun);
  fetch->set_slice(slice);
  fetch->set_step(step);
  fetch->set_state(true);
  return message;
}

TEST_F(ServerTest, ASnapshotIsThatOfItsStepHoweverFarTrainingHasGone) {
  make("strategy = sync\noptimizer = momentum\nlr = 0.1\ncheckpoint-every = 2\n");
  const auto step = [&](int64_t s) {
    push(kAnna, s + 1, s, kFirst, 1.0F);
    push(kBert, s + 1, s, kSecond, 1.0F);
  };
  EXPECT_TRUE(server_->on_data("c", fetch_message(0, 2)));
  EXPECT_TRUE(server_->take_outgoing()[0].message.header.status().not_ready());
  step(0);
  step(1);
  EXPECT_EQ(observer_.barriers, (std::vector<int64_t>{2}));
  server_->on_data("c", fetch_message(0, 2));
  const auto then = server_->take_outgoing();
  ASSERT_EQ(then[0].message.payloads.size(), 2U) << "weights and momentum";
  step(2);
  server_->on_data("c", fetch_message(0, 2));
  const auto now = server_->take_outgoing();
  EXPECT_EQ(now[0].message.header.fetched().updates(), 2);
  EXPECT_EQ(floats_of(now[0].message.payloads[0]), floats_of(then[0].message.payloads[0]));
  EXPECT_EQ(floats_of(now[0].message.payloads[1]), floats_of(then[0].message.payloads[1]));
}

TEST_F(ServerTest, TwoSnapshotsAreHeldAndTheThirdWaitsUntilOneIsGathered) {
  make("strategy = sync\noptimizer = momentum\nlr = 0.1\ncheckpoint-every = 1\n");
  std::vector<std::vector<float>> momenta;
  for (int64_t s = 0; s < 3; ++s) {
    push(kAnna, s + 1, s, kFirst, static_cast<float>(s + 1));
    push(kBert, s + 1, s, kSecond, static_cast<float>(s + 1));
    if (s == 2) break;
    EXPECT_EQ(server_->open_barrier(), s + 1) << "the one before is still being gathered";
    server_->take_outgoing();
    server_->on_data("c", fetch_message(0, s + 1));
    momenta.push_back(floats_of(server_->take_outgoing()[0].message.payloads[1]));
  }
  EXPECT_EQ(server_->open_barrier(), 2);
  EXPECT_EQ(observer_.waits, (std::set<int64_t>{3}));
  pull(kAnna, 1, 3);
  EXPECT_FALSE(answered(kAnna)) << "the disk is slow";
  for (int64_t s = 0; s < 2; ++s) {
    server_->on_data("c", fetch_message(0, s + 1));
    EXPECT_EQ(floats_of(server_->take_outgoing()[0].message.payloads[1]),
              momenta[static_cast<size_t>(s)]);
  }
  EXPECT_NE(momenta[0], momenta[1]);
  server_->on_state(state_with_workers({kAnna, kBert}, 1));
  EXPECT_EQ(server_->open_barrier(), 3);
  EXPECT_TRUE(answered(kAnna));
  server_->on_data("c", fetch_message(0, 1));
  EXPECT_TRUE(server_->take_outgoing()[0].message.header.status().not_ready());
}

TEST_F(ServerTest, SlicesAreAnsweredAtABarrierOneByOneUnlessItMustStayClosed) {
  make("strategy = sync\neval-every = 1\ncheckpoint-every = 2\n");
  for (int64_t s = 0; s < 6; ++s) {
    push(kBert, s + 1, s, kSecond);
    Message whole = push_message(setup_, kAnna, s + 1, s, kFirst, 1.0F);
    Message first = whole;
    first.header.mutable_exchange()->mutable_push()->mutable_parts()->DeleteSubrange(1, 2);
    first.payloads.resize(1);
    EXPECT_TRUE(server_->on_data("anna", first));
    Message evaluation = pull_message(kBert, s + 1, s + 1);
    evaluation.header.mutable_exchange()->mutable_pull()->set_barrier(true);
    EXPECT_TRUE(server_->on_data("bert", evaluation));
    const bool full = s + 1 == 6;  // checkpoints 2 and 4 are held
    using Slices = std::vector<std::pair<int, int64_t>>;
    EXPECT_EQ(slices_to(kBert), full ? Slices{} : (Slices{{0, s + 1}})) << s;
    EXPECT_EQ(server_->open_barrier(), s);
    EXPECT_TRUE(server_->on_data("anna", whole));
    EXPECT_EQ(server_->open_barrier(), full ? s : s + 1);
    EXPECT_EQ(slices_to(kBert), full ? Slices{} : (Slices{{1, s + 1}, {2, s + 1}})) << s;
  }
  EXPECT_FALSE(push(kBert, 7, 6, kSecond)) << "nobody can have these weights";
  server_->on_state(state_with_workers({kAnna, kBert}, 2));
  EXPECT_EQ(slices_to(kBert).size(), 3U);
}

TEST_F(ServerTest, TheStartIsFetchedAsItWasUntilItIsReleased) {
  make("strategy = sync\noptimizer = momentum\nlr = 0.1\n");
  server_->on_state(state_with_workers({kAnna, kBert}, -1));
  pull(kAnna, 1, 0);
  const auto before = server_->take_outgoing();
  push(kAnna, 1, 0, kFirst, 1.0F);
  push(kBert, 1, 0, kSecond, 1.0F);
  server_->take_outgoing();
  Message fetch = fetch_message(0, 0);
  EXPECT_EQ(server_->on_data("c", fetch).reason(), "fetch-state");
  fetch.header.mutable_fetch()->set_state(false);
  EXPECT_TRUE(server_->on_data("c", fetch));
  const auto start = server_->take_outgoing();
  ASSERT_EQ(start[0].message.payloads.size(), 1U);
  EXPECT_EQ(floats_of(start[0].message.payloads[0]), floats_of(before[0].message.payloads[0]));
  server_->on_state(state_with_workers({kAnna, kBert}, 0));
  EXPECT_TRUE(server_->on_data("c", fetch));
  EXPECT_TRUE(server_->take_outgoing()[0].message.header.status().not_ready());
}

// ---- initial weights ----

Message load_message(const ServerSetup& setup, int slice, float value, size_t payloads = 1) {
  const SliceMap map(setup.table.total, setup.job.slice_bytes, setup.servers);
  Message message;
  message.header.mutable_load()->mutable_sender()->set_run(kRun);
  message.header.mutable_load()->set_slice(slice);
  for (size_t i = 0; i < payloads; ++i) {
    message.payloads.push_back(constant_payload(map.elements(slice).size(), value));
  }
  return message;
}

TEST_F(ServerTest, WaitsForInitialWeightsBeforeItServes) {
  setup_ = server_setup(job_of("strategy = sync\n"), kElements);
  setup_.load = true;
  make_from_setup();
  EXPECT_FALSE(server_->ready());
  EXPECT_TRUE(pull(kAnna, 1, 0));
  EXPECT_TRUE(server_->take_outgoing()[0].message.header.status().not_ready());
  for (int slice = 0; slice < 3; ++slice) {
    EXPECT_TRUE(server_->on_data("c", load_message(setup_, slice, 7.0F)));
    EXPECT_TRUE(server_->take_outgoing()[0].message.header.has_loaded());
  }
  EXPECT_TRUE(server_->ready());
  Message start = fetch_message(1, 0);
  start.header.mutable_fetch()->set_state(false);
  EXPECT_TRUE(server_->on_data("c", start));
  EXPECT_EQ(server_->take_outgoing()[0].message.payloads[0].floats()[0], 7.0F);
  pull(kAnna, 1, 0);
  EXPECT_EQ(server_->take_outgoing()[0].message.payloads[1].floats()[0], 7.0F);
}

TEST_F(ServerTest, ARepeatedLoadDoesNotUndoTraining) {
  setup_ = server_setup(job_of("strategy = sync\n"), kElements);
  setup_.load = true;
  make_from_setup();
  for (int slice = 0; slice < 3; ++slice) {
    server_->on_data("c", load_message(setup_, slice, 7.0F));
  }
  push(kAnna, 1, 0, kFirst, 4.0F);
  push(kBert, 1, 0, kSecond, 4.0F);
  EXPECT_TRUE(server_->on_data("c", load_message(setup_, 0, 7.0F)));
  server_->take_outgoing();
  pull(kAnna, 1, 1);
  EXPECT_EQ(server_->take_outgoing()[0].message.payloads[0].floats()[0], 5.0F);
}

TEST_F(ServerTest, AWorkerThatTheCoordinatorHasNotNamedIsToldToAskAgain) {
  make("strategy = sync\n");
  EXPECT_TRUE(server_->on_data("x", push_message(setup_, 999, 1, 0, kFirst, 1.0F)));
  EXPECT_TRUE(server_->take_outgoing()[0].message.header.status().not_ready());
  push(kAnna, 1, 0, kFirst);
  server_->on_state(state_with_workers({kBert}));  // anna is lost
  EXPECT_TRUE(push(kAnna, 2, 0, kSecond));
  EXPECT_EQ(server_->floor(), 0);
}

}  // namespace
}  // namespace pushpull

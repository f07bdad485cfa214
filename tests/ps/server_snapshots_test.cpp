// Barriers, snapshots and initial weights of a server.
#include <gtest/gtest.h>

#include "tests/ps/refusals.h"
#include "tests/ps/server_fixture.h"

namespace pushpull::server_snapshots_test {
namespace {

// ---- barriers and snapshots ----

Message fetch_message(int slice, int64_t step) {
  Message message;
  wire::Fetch* fetch = message.header.mutable_fetch();
  fetch->mutable_sender()->set_term_id(kTermId);
  fetch->mutable_sender()->set_incarnation(kCoordinator);
  fetch->set_slice(slice);
  fetch->set_step(step);
  fetch->set_state(true);
  return message;
}

TEST_F(ServerTest, SnapshotKeepsTheStateOfItsStep) {
  make("strategy = sync\noptimizer = momentum\nlr = 0.1\ncheckpoint-every = 2\n");
  const auto step = [&](int64_t s) {
    push(kAnna, s + 1, s, kFirst, 1.0F);
    push(kBert, s + 1, s, kSecond, 1.0F);
  };
  EXPECT_TRUE(taken(server_->on_data("c", fetch_message(0, 2))));
  EXPECT_TRUE(server_->take_outgoing()[0].message.header.status().not_ready());
  step(0);
  step(1);
  EXPECT_EQ(observer_.barriers, (std::vector<int64_t>{2}));
  server_->on_data("c", fetch_message(0, 2));
  const auto then = server_->take_outgoing();
  ASSERT_EQ(then[0].message.payloads.size(), 2U) << "weights, momentum";
  step(2);
  server_->on_data("c", fetch_message(0, 2));
  const auto now = server_->take_outgoing();
  EXPECT_EQ(now[0].message.header.fetched().updates(), 2);
  EXPECT_EQ(floats_of(now[0].message.payloads[0]), floats_of(then[0].message.payloads[0]));
  EXPECT_EQ(floats_of(now[0].message.payloads[1]), floats_of(then[0].message.payloads[1]));
}

TEST_F(ServerTest, CheckpointChosenAtTheCurrentStepIsTakenAtOnce) {
  make("strategy = sync\noptimizer = momentum\nlr = 0.1\ncheckpoint-every = auto\n");
  for (int64_t s = 0; s < 2; ++s) {
    push(kAnna, s + 1, s, kFirst, 1.0F);
    push(kBert, s + 1, s, kSecond, 1.0F);
  }
  EXPECT_TRUE(observer_.barriers.empty());
  wire::State state = state_with_workers({kAnna, kBert});
  state.add_chosen_checkpoints(2);
  server_->on_state(state);
  EXPECT_EQ(observer_.barriers, (std::vector<int64_t>{2}));
  push(kAnna, 3, 2, kFirst, 1.0F);
  push(kBert, 3, 2, kSecond, 1.0F);
  server_->take_outgoing();
  server_->on_data("c", fetch_message(0, 2));
  const auto out = server_->take_outgoing();
  ASSERT_EQ(out[0].message.payloads.size(), 2U);
  EXPECT_EQ(out[0].message.header.fetched().updates(), 2) << "the weights of step 2";
}

TEST_F(ServerTest, OnlyTheCoordinatorFetchesIfServersKeepTheWeights) {
  make("strategy = sync\n");
  Message mine = fetch_message(0, 0);
  mine.header.mutable_fetch()->mutable_sender()->set_incarnation(kAnna);
  mine.header.mutable_fetch()->set_state(false);
  server_->on_data("anna", mine);
  EXPECT_TRUE(server_->take_outgoing()[0].message.header.status().not_ready());
  mine.header.mutable_fetch()->mutable_sender()->set_incarnation(kCoordinator);
  server_->on_data("c", mine);
  EXPECT_TRUE(server_->take_outgoing()[0].message.header.has_fetched());
}

TEST_F(ServerTest, HoldsTwoSnapshotsAndDelaysTheThirdUntilOneIsGathered) {
  make("strategy = sync\noptimizer = momentum\nlr = 0.1\ncheckpoint-every = 1\n");
  std::vector<std::vector<float>> momenta;
  for (int64_t s = 0; s < 3; ++s) {
    push(kAnna, s + 1, s, kFirst, static_cast<float>(s + 1));
    push(kBert, s + 1, s, kSecond, static_cast<float>(s + 1));
    if (s == 2) break;
    EXPECT_EQ(server_->open_barrier(), s + 1) << "the previous snapshot is still being gathered";
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

TEST_F(ServerTest, SlicesAreAnsweredOneByOneAtABarrierUnlessItStaysClosed) {
  make("strategy = sync\neval-every = 1\ncheckpoint-every = 2\n");
  for (int64_t s = 0; s < 6; ++s) {
    push(kBert, s + 1, s, kSecond);
    Message whole = push_message(setup_, kAnna, s + 1, s, kFirst, 1.0F);
    Message first = whole;
    first.header.mutable_exchange()->mutable_push()->mutable_parts()->DeleteSubrange(1, 2);
    first.payloads.resize(1);
    EXPECT_TRUE(taken(server_->on_data("anna", first)));
    Message evaluation = pull_message(kBert, s + 1, s + 1);
    evaluation.header.mutable_exchange()->mutable_pull()->set_barrier(true);
    EXPECT_TRUE(taken(server_->on_data("bert", evaluation)));
    const bool full = s + 1 == 6;  // checkpoints 2 and 4 are held
    using Slices = std::vector<std::pair<int, int64_t>>;
    EXPECT_EQ(slices_to(kBert), full ? Slices{} : (Slices{{0, s + 1}})) << s;
    EXPECT_EQ(server_->open_barrier(), s);
    EXPECT_TRUE(taken(server_->on_data("anna", whole)));
    EXPECT_EQ(server_->open_barrier(), full ? s : s + 1);
    EXPECT_EQ(slices_to(kBert), full ? Slices{} : (Slices{{1, s + 1}, {2, s + 1}})) << s;
  }
  EXPECT_FALSE(taken(push(kBert, 7, 6, kSecond))) << "no worker can have these weights";
  server_->on_state(state_with_workers({kAnna, kBert}, 2));
  EXPECT_EQ(slices_to(kBert).size(), 3U);
}

TEST_F(ServerTest, InitialWeightsStayUntilTheyAreReleased) {
  make("strategy = sync\noptimizer = momentum\nlr = 0.1\n");
  server_->on_state(state_with_workers({kAnna, kBert}, -1));
  pull(kAnna, 1, 0);
  const auto before = server_->take_outgoing();
  push(kAnna, 1, 0, kFirst, 1.0F);
  push(kBert, 1, 0, kSecond, 1.0F);
  server_->take_outgoing();
  Message fetch = fetch_message(0, 0);
  EXPECT_EQ(reason_of(server_->on_data("c", fetch)), "fetch-state");
  fetch.header.mutable_fetch()->set_state(false);
  EXPECT_TRUE(taken(server_->on_data("c", fetch)));
  const auto start = server_->take_outgoing();
  ASSERT_EQ(start[0].message.payloads.size(), 1U);
  EXPECT_EQ(floats_of(start[0].message.payloads[0]), floats_of(before[0].message.payloads[0]));
  server_->on_state(state_with_workers({kAnna, kBert}, 0));
  EXPECT_TRUE(taken(server_->on_data("c", fetch)));
  EXPECT_TRUE(server_->take_outgoing()[0].message.header.status().not_ready());
}

// ---- initial weights ----

Message load_message(const ServerSetup& setup, int slice, float value, size_t payloads = 1) {
  const SliceMap map(setup.table.total, setup.job.slice_bytes, setup.servers);
  Message message;
  message.header.mutable_load()->mutable_sender()->set_term_id(kTermId);
  message.header.mutable_load()->mutable_sender()->set_incarnation(kCoordinator);
  message.header.mutable_load()->set_slice(slice);
  for (size_t i = 0; i < payloads; ++i) {
    message.payloads.push_back(constant_payload(map.elements(slice).size(), value));
  }
  return message;
}

TEST_F(ServerTest, WaitsForInitialWeightsBeforeItServes) {
  setup_ = server_setup(job_of("strategy = sync\n"), kServerElements);
  setup_.load = true;
  make_from_setup();
  EXPECT_FALSE(server_->ready());
  EXPECT_TRUE(taken(pull(kAnna, 1, 0)));
  EXPECT_TRUE(server_->take_outgoing()[0].message.header.status().not_ready());
  for (int slice = 0; slice < 3; ++slice) {
    EXPECT_TRUE(taken(server_->on_data("c", load_message(setup_, slice, 7.0F))));
    EXPECT_TRUE(server_->take_outgoing()[0].message.header.has_loaded());
  }
  EXPECT_TRUE(server_->ready());
  Message start = fetch_message(1, 0);
  start.header.mutable_fetch()->set_state(false);
  EXPECT_TRUE(taken(server_->on_data("c", start)));
  EXPECT_EQ(server_->take_outgoing()[0].message.payloads[0].floats()[0], 7.0F);
  pull(kAnna, 1, 0);
  EXPECT_EQ(server_->take_outgoing()[0].message.payloads[1].floats()[0], 7.0F);
}

TEST_F(ServerTest, RepeatedLoadDoesNotUndoTraining) {
  setup_ = server_setup(job_of("strategy = sync\n"), kServerElements);
  setup_.load = true;
  make_from_setup();
  for (int slice = 0; slice < 3; ++slice) {
    server_->on_data("c", load_message(setup_, slice, 7.0F));
  }
  push(kAnna, 1, 0, kFirst, 4.0F);
  push(kBert, 1, 0, kSecond, 4.0F);
  EXPECT_TRUE(taken(server_->on_data("c", load_message(setup_, 0, 7.0F))));
  server_->take_outgoing();
  pull(kAnna, 1, 1);
  EXPECT_EQ(server_->take_outgoing()[0].message.payloads[0].floats()[0], 5.0F);
}

}  // namespace
}  // namespace pushpull::server_snapshots_test

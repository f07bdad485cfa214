// Groups of workers that divide the model, at a server: pushes of stages, and pulls of some slices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ps/server/server.h"
#include "tests/ps/cluster_parts.h"
#include "tests/ps/refusals.h"

namespace pushpull {
namespace {

// Server 0 of two, with slices 0 and 2 of 4: slices 0 and 1 belong to stage 0. Worker kAnna computes
// stage 0, kBert stage 1; one share of 4 micro-batches.
class StagesServerTest : public testing::Test {
 protected:
  void make(const std::string& strategy, int rank = 0) {
    job_ = job_of("strategy = " + strategy + "\nstages = 2\nslice-bytes = 4096\n");
    setup_ = server_setup(job_, 4096, rank, 2, 1);
    TensorTable table;
    table.add({.name = "a", .shape = {2048}});
    table.add({.name = "b", .shape = {2048}, .begins_stage = true});
    setup_.table = table;
    server_ = std::make_unique<Server>(setup_, &observer_);
    server_->on_state(state_with_workers({kAnna, kBert}, 0));
  }
  // A push of a stage's slices at this server; the last stage has the losses.
  Message push(uint64_t who, int stage, int64_t number, int64_t step, float value = 1.0F,
               int64_t attempt = 0) const {
    Message message = push_message(setup_, who, number, step, {0, 4}, value);
    wire::Push* push = message.header.mutable_exchange()->mutable_push();
    const SliceMap map(setup_.table, setup_.job.slice_bytes, 2);
    for (int i = push->parts_size() - 1; i >= 0; --i) {
      if (map.stage_of(push->parts(i).slice()) == stage) continue;
      push->mutable_parts()->DeleteSubrange(i, 1);
      message.payloads.erase(message.payloads.begin() + i);
    }
    push->set_parts_total(push->parts_size());
    push->set_stage(stage);
    if (stage == 0) push->clear_losses();
    *push->mutable_grant() =
        Grants(setup_.grant_key).make(who, {0, 4}, {0, setup_.end_step}, {stage, attempt});
    return message;
  }
  Checked take(Message message) { return server_->on_data("peer", std::move(message)); }
  // Returns the slices of all answers so far.
  std::vector<int> answered() {
    std::vector<int> out;
    for (const Outgoing& o : server_->take_outgoing()) {
      for (const auto& slice : o.message.header.weights().slices()) out.push_back(slice.slice());
    }
    std::ranges::sort(out);
    return out;
  }

  Job job_;
  ServerSetup setup_;
  ListeningObserver observer_;
  std::unique_ptr<Server> server_;
};

TEST_F(StagesServerTest, AStepIsCompleteWithAllStages) {
  make("sync");
  EXPECT_TRUE(taken(take(push(kBert, 1, 1, 0))));
  EXPECT_EQ(server_->floor(), 0);
  EXPECT_TRUE(observer_.commits.empty());
  EXPECT_TRUE(taken(take(push(kAnna, 0, 1, 0))));
  EXPECT_EQ(server_->floor(), 1);
  ASSERT_EQ(observer_.commits.size(), 1U) << "a group's push is one push";
  EXPECT_EQ(observer_.commits[0].incarnation, kBert) << "the last stage has the losses";
  EXPECT_EQ(observer_.commits[0].losses.size(), 4U);
  EXPECT_EQ(observer_.commits[0].others, std::vector<uint64_t>{kAnna});
}

TEST_F(StagesServerTest, ASliceWaitsForThePushesOfTheOtherStages) {
  make("sync");
  EXPECT_TRUE(taken(take(push(kBert, 1, 1, 0))));
  Message pull = pull_message(kBert, 1, 1);
  wire::SliceRange* wanted = pull.header.mutable_exchange()->mutable_pull()->add_wanted();
  wanted->set_lo(2);
  wanted->set_hi(4);
  EXPECT_TRUE(taken(take(std::move(pull))));
  EXPECT_EQ(answered(), std::vector<int>{});
  EXPECT_TRUE(taken(take(push(kAnna, 0, 1, 0))));
  EXPECT_EQ(answered(), std::vector<int>{2}) << "slice 3 is another server's";
}

TEST_F(StagesServerTest, APullGetsNoOtherSlices) {
  make("sync");
  Message pull = pull_message(kAnna, 1, 0);
  wire::SliceRange* wanted = pull.header.mutable_exchange()->mutable_pull()->add_wanted();
  wanted->set_lo(0);
  wanted->set_hi(2);
  EXPECT_TRUE(taken(take(std::move(pull))));
  EXPECT_EQ(answered(), std::vector<int>{0});
  Message all = pull_message(kAnna, 2, 0);
  EXPECT_TRUE(taken(take(std::move(all))));
  EXPECT_EQ(answered(), (std::vector<int>{0, 2}));
}

TEST_F(StagesServerTest, AStageThatReadsNothingHereMayBeAStepAhead) {
  make("sync");
  EXPECT_TRUE(taken(take(push(kBert, 1, 2, 1)))) << "it waits for its step";
  EXPECT_TRUE(taken(take(push(kBert, 1, 1, 0))));
  EXPECT_TRUE(taken(take(push(kAnna, 0, 1, 0))));
  EXPECT_EQ(server_->floor(), 1);
  EXPECT_TRUE(taken(take(push(kAnna, 0, 2, 1))));
  EXPECT_EQ(server_->floor(), 2);
}

TEST_F(StagesServerTest, AGroupThatComputesAStepAgainChangesNothing) {
  make("sync");
  for (const int64_t number : {1, 2}) {
    EXPECT_TRUE(taken(take(push(kAnna, 0, number, 0))));
    EXPECT_TRUE(taken(take(push(kBert, 1, number, 0))));
  }
  EXPECT_EQ(server_->floor(), 1);
  ASSERT_EQ(observer_.commits.size(), 2U);
  EXPECT_TRUE(observer_.commits[0].counted);
  EXPECT_FALSE(observer_.commits[1].counted);
}

TEST_F(StagesServerTest, InSspTheLastPushesOfStagesBelongTogether) {
  make("ssp:2");
  EXPECT_TRUE(taken(take(push(kBert, 1, 1, 0, 5.0F))));
  EXPECT_TRUE(taken(take(push(kBert, 1, 2, 0, 1.0F)))) << "the group has changed";
  EXPECT_TRUE(taken(take(push(kAnna, 0, 1, 0, 1.0F))));
  EXPECT_EQ(server_->floor(), 1);
  EXPECT_EQ(server_->stats().updates(), 1) << "one update of all stages";
}

// The worker writes other gradients there once its push is acknowledged. In sync that is after the update.
TEST_F(StagesServerTest, NoMemoryOfAnAcknowledgedPushIsHeldForOtherStages) {
  for (const auto& [strategy, held] : {std::pair{"async", false}, std::pair{"sync", true}}) {
    make(strategy);
    Message message = push(kBert, 1, 1, 0);
    ASSERT_EQ(message.payloads.size(), 1U);
    const std::weak_ptr<const void> memory = message.payloads.front().owner;
    EXPECT_TRUE(taken(take(std::move(message))));
    EXPECT_EQ(!memory.expired(), held) << strategy;
    EXPECT_TRUE(taken(take(push(kAnna, 0, 1, 0))));
    EXPECT_EQ(server_->stats().updates(), 1) << strategy;
  }
}

TEST_F(StagesServerTest, PushesOfTwoAttemptsAreNotOneUpdate) {
  make("async");
  EXPECT_TRUE(taken(take(push(kBert, 1, 1, 0, 5.0F, 3))));
  EXPECT_TRUE(taken(take(push(kAnna, 0, 1, 0, 1.0F, 4))));
  EXPECT_EQ(server_->stats().updates(), 0);
  EXPECT_TRUE(taken(take(push(kBert, 1, 2, 0, 1.0F, 4))));
  EXPECT_EQ(server_->stats().updates(), 1);
  ASSERT_EQ(observer_.commits.size(), 1U);
  EXPECT_EQ(observer_.commits[0].attempt, 4);
  EXPECT_TRUE(taken(take(push(kAnna, 0, 2, 1, 1.0F, 4))));
  EXPECT_TRUE(taken(take(push(kBert, 1, 3, 1, 1.0F, 3))));
  EXPECT_EQ(server_->stats().updates(), 1) << "they are of two attempts";
  EXPECT_TRUE(taken(take(push(kAnna, 0, 3, 1, 1.0F, 3))));
  EXPECT_EQ(server_->stats().updates(), 2) << "another group, formed earlier, has the lease now";
}

TEST_F(StagesServerTest, APullWaitsForTheOtherStagesOfTheGroupsPush) {
  make("async");
  const auto pull = [](uint64_t who, int64_t number, bool after) {
    Message message = pull_message(who, number, 0);
    wire::Pull* out = message.header.mutable_exchange()->mutable_pull();
    if (after) out->set_after_hi(4);
    return message;
  };
  EXPECT_TRUE(taken(take(push(kBert, 1, 1, 0))));
  EXPECT_TRUE(taken(take(pull(kAnna, 1, false))));
  EXPECT_FALSE(answered().empty()) << "it has pushed nothing yet";
  EXPECT_TRUE(taken(take(pull(kBert, 1, true))));
  EXPECT_TRUE(answered().empty());
  EXPECT_TRUE(taken(take(push(kAnna, 0, 1, 0))));
  EXPECT_FALSE(answered().empty());
}

TEST_F(StagesServerTest, AStageWithoutSlicesOfAServerHasReadNothingOfIt) {
  job_ = job_of("strategy = async\nstages = 2\nslice-bytes = 4096\n");
  setup_ = server_setup(job_, 2048, 0, 2, 1);  // server 0 has slice 0, of stage 0
  setup_.updates = 7;
  TensorTable table;
  table.add({.name = "a", .shape = {1024}});
  table.add({.name = "b", .shape = {1024}, .begins_stage = true});
  setup_.table = table;
  server_ = std::make_unique<Server>(setup_, &observer_);
  server_->on_state(state_with_workers({kAnna, kBert}, 0));
  EXPECT_TRUE(taken(take(push(kBert, 1, 1, 0, 1.0F, 3))));
  Message first = push(kAnna, 0, 1, 0, 1.0F, 3);
  first.header.mutable_exchange()->mutable_push()->set_read_versions(0, 7);
  EXPECT_TRUE(taken(take(std::move(first))));
  EXPECT_EQ(server_->stats().updates(), 8);
  EXPECT_EQ(server_->stats().staleness().at(0), 1);
}

TEST_F(StagesServerTest, ServerWithoutSlicesOfAStageDoesNotWaitForIt) {
  job_ = job_of("strategy = sync\nstages = 2\nslice-bytes = 4096\n");
  setup_ = server_setup(job_, 3072, 1, 2, 1);  // server 1 has slice 1, of stage 0
  TensorTable table;
  table.add({.name = "a", .shape = {2048}});
  table.add({.name = "b", .shape = {1024}, .begins_stage = true});
  setup_.table = table;
  server_ = std::make_unique<Server>(setup_, &observer_);
  server_->on_state(state_with_workers({kAnna, kBert}, 0));
  EXPECT_TRUE(taken(take(push(kAnna, 0, 1, 0))));
  EXPECT_EQ(server_->floor(), 1);
}

TEST_F(StagesServerTest, ARecordHasTheVersionsThatEachStageHasRead) {
  job_ = job_of("strategy = async\nstages = 2\nslice-bytes = 4096\nrecord = run.rec\n");
  setup_ = server_setup(job_, 3072, 1, 2, 1);  // server 1 has slice 1, of stage 0
  TensorTable table;
  table.add({.name = "a", .shape = {2048}});
  table.add({.name = "b", .shape = {1024}, .begins_stage = true});
  setup_.table = table;
  server_ = std::make_unique<Server>(setup_, &observer_);
  server_->on_state(state_with_workers({kAnna, kBert}, 0));
  EXPECT_TRUE(taken(take(push(kAnna, 0, 1, 0, 1.0F, 3))));
  EXPECT_EQ(server_->log().size(), 0) << "stage 1 has no slice here, but its versions are needed";
  Message last = push(kBert, 1, 1, 0, 1.0F, 3);
  last.header.mutable_exchange()->mutable_push()->set_read_versions(0, 5);
  last.header.mutable_exchange()->mutable_push()->set_read_versions(1, -1);
  EXPECT_TRUE(taken(take(std::move(last))));
  ASSERT_EQ(server_->log().size(), 1);
  EXPECT_THAT(server_->log().part()->applied(0).read_versions(), testing::ElementsAre(0, 0, 5, -1));
}

TEST_F(StagesServerTest, PushesThatDoNotFitTheirStageAreRefused) {
  make("sync");
  Message wrong = push(kAnna, 0, 1, 0);
  wrong.header.mutable_exchange()->mutable_push()->set_stage(2);
  EXPECT_EQ(line_of(take(std::move(wrong))).substr(0, 44),
            "[push-stage] expected one of 2 stages, got 2");
  Message other = push(kAnna, 0, 1, 0);
  other.header.mutable_exchange()->mutable_push()->set_stage(1);
  EXPECT_EQ(line_of(take(std::move(other))).substr(0, 12), "[push-grant]")
      << "the grant names the stage";
  Message slices = push_message(setup_, kAnna, 1, 0, {0, 4}, 1.0F);
  EXPECT_EQ(line_of(take(std::move(slices))).substr(0, 12), "[push-parts]");
}

// All-reduce: pushes have losses alone, and those of the last stage.
TEST_F(StagesServerTest, LossesOfTheLastStageCountOnceAllStagesHaveReported) {
  make("allreduce:tree");
  const auto report = [&](uint64_t who, int stage) {
    Message message = push(who, stage, 1, 0);
    message.header.mutable_exchange()->mutable_push()->clear_parts();
    message.header.mutable_exchange()->mutable_push()->set_parts_total(0);
    message.payloads.clear();
    return message;
  };
  EXPECT_TRUE(taken(take(report(kAnna, 0))));
  EXPECT_TRUE(observer_.commits.empty());
  Message without = report(kBert, 1);
  without.header.mutable_exchange()->mutable_push()->clear_losses();
  EXPECT_EQ(reason_of(take(without)), "push-losses");
  EXPECT_TRUE(taken(take(report(kBert, 1))));
  ASSERT_EQ(observer_.commits.size(), 1U);
  EXPECT_EQ(observer_.commits[0].losses.size(), 4U);
  EXPECT_EQ(server_->floor(), 1);
}

// Server 0 has slice 0 of stage 0, which the groups' workers with this stage store in turn, and slice 2 of stage 1.
TEST_F(StagesServerTest, AWorkerStoresSlicesOfItsStageAlone) {
  make("allreduce:tree\ncheckpoint-every = 1");
  wire::State state = state_with_workers({kAnna, kBert}, 0);
  for (int worker = 0; worker < 2; ++worker) {
    state.mutable_workers(worker)->set_share(1);
    state.mutable_workers(worker)->set_stage(worker);
  }
  server_->on_state(state);
  const auto stores = [&](uint64_t who, int slice) {
    Message message;
    wire::Store* store = message.header.mutable_store();
    store->mutable_sender()->set_term_id(kTermId);
    store->mutable_sender()->set_incarnation(who);
    store->set_slice(slice);
    store->set_step(1);
    store->set_updates(1);
    message.payloads = {constant_payload(1024, 1.0F)};
    EXPECT_TRUE(taken(take(std::move(message))));
    const std::vector<Outgoing> out = server_->take_outgoing();
    return out.size() == 1 && out.front().message.header.has_stored();
  };
  EXPECT_FALSE(stores(kBert, 0));
  EXPECT_TRUE(stores(kAnna, 0));
  EXPECT_FALSE(stores(kAnna, 2));
  EXPECT_TRUE(stores(kBert, 2));
}

}  // namespace
}  // namespace pushpull

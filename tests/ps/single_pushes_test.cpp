#include "ps/server/single_pushes.h"

#include <gtest/gtest.h>

#include "ps/server/server.h"
#include "tests/ps/cluster_parts.h"
#include "tests/ps/refusals.h"
#include "tests/ps/rule_fixture.h"

namespace pushpull::async_update_test {

// Updates of single pushes (async, ssp): how far a push moves the weights, against numbers worked
// out by hand, and which weights the server keeps for it.

namespace {

TEST(AsyncUpdate, CarriesItsShareOfTheGlobalBatch) {
  const UpdateInfo info = async_update(job_of("strategy = async\nlr = 0.5\n"), 10, {3, {1, 4}});
  EXPECT_EQ(info.learning_rate, 0.5);
  EXPECT_EQ(info.divisor, 3.0);
  EXPECT_EQ(info.share, 0.75);
  EXPECT_EQ(info.clip, 1.0);
  EXPECT_EQ(info.delay_compensation, 0.0);
}

TEST(AsyncUpdate, ClipsByTheNormOfThePush) {
  const Job job = job_of("strategy = async\nclip-norm = 2\n");
  EXPECT_EQ(async_update(job, 10, {0, {0, 2}, 1.0}).clip, 1.0);
  EXPECT_NEAR(async_update(job, 10, {0, {0, 2}, 64.0}).clip, 0.25, 1e-6);
}

TEST(AsyncUpdate, StalenessAwareDividesTheRate) {
  const std::string keys = "strategy = async\nlr = 0.6\n";
  const Job aware = job_of(keys + "staleness-aware = true\n");
  for (const auto& [staleness, rate] : {std::pair{0, 0.6}, {1, 0.3}, {2, 0.2}, {5, 0.1}}) {
    EXPECT_DOUBLE_EQ(async_update(aware, 10, {0, {0, 2}, 0.0, staleness}).learning_rate, rate);
    EXPECT_EQ(async_update(job_of(keys), 10, {0, {0, 2}, 0.0, staleness}).learning_rate, 0.6);
  }
}

TEST(AsyncUpdate, ScheduleFollowsTheStepOfTheLease) {
  const Job job = job_of(
      "strategy = async\nlr = 1\nlr-schedule = step\nlr-step = 4\nlr-gamma = 0.5\n"
      "staleness-aware = true\n");
  EXPECT_DOUBLE_EQ(async_update(job, 10, {3, {0, 2}, 0.0, 1}).learning_rate, 0.5);
  EXPECT_DOUBLE_EQ(async_update(job, 10, {4, {0, 2}, 0.0, 1}).learning_rate, 0.25);
}

TEST(HandedWeights, KeepsTheNewestVersionsUntilTheirPushArrives) {
  HandedWeights handed;
  EXPECT_EQ(handed.find(0), nullptr);
  for (int64_t version = 0; version < 6; ++version) {
    handed.keep(version, 0, constant_payload(4, 1.0F));
    handed.keep(version, 2, constant_payload(4, 2.0F));
  }
  EXPECT_EQ(handed.versions(), HandedWeights::kMaxVersions);
  EXPECT_EQ(handed.find(1), nullptr);
  ASSERT_NE(handed.find(3), nullptr);
  EXPECT_EQ(handed.find(3)->size(), 2U);
  handed.forget_before(4);
  EXPECT_EQ(handed.find(3), nullptr);
  EXPECT_NE(handed.find(4), nullptr);
}

// ---- the server ----

constexpr int64_t kElements = 3000;  // elements 2899 to 2998 are running statistics

class AsyncServer : public testing::Test {
 protected:
  void make(const std::string& keys) {
    setup_ = server_setup(job_of("strategy = async\nlr = 1\n" + keys), kElements);
    server_ = std::make_unique<Server>(setup_, nullptr);
    server_->on_state(state_with_workers({kAnna, kBert}));
  }
  // Pulls as this worker and returns the first weight.
  float pull(uint64_t who, int64_t number) {
    EXPECT_TRUE(taken(server_->on_data(std::to_string(who), pull_message(who, number, 0))));
    const auto out = server_->take_outgoing();
    EXPECT_EQ(out.size(), 1U);
    return out[0].message.payloads[0].floats()[0];
  }
  void push(uint64_t who, int64_t number, int64_t step, Range share, float value, int64_t read) {
    Message message = push_message(setup_, who, number, step, share, value);
    message.header.mutable_exchange()->mutable_push()->set_read_versions(0, read);
    EXPECT_TRUE(taken(server_->on_data(std::to_string(who), message)));
    server_->take_outgoing();
  }

  ServerSetup setup_;
  std::unique_ptr<Server> server_;
};

TEST_F(AsyncServer, StalenessAwareScalesDownAStalePush) {
  make("staleness-aware = true\n");
  const float start = pull(kAnna, 1);
  pull(kBert, 1);
  // sums over 2 of 4 micro-batches: mean gradient 2, share 1/2
  push(kAnna, 1, 0, {0, 2}, 4.0F, 0);
  EXPECT_FLOAT_EQ(pull(kAnna, 2), start - 1.0F);
  push(kBert, 1, 0, {2, 4}, 4.0F, 0);
  EXPECT_FLOAT_EQ(pull(kAnna, 3), start - 1.0F - 0.5F) << "staleness 1 halves the rate";
}

TEST_F(AsyncServer, DelayCompensationUsesTheWeightsThatWereRead) {
  make("delay-compensation = 0.25\nrecord = r\n");
  const float start = pull(kAnna, 1);
  EXPECT_EQ(pull(kBert, 1), start);
  push(kAnna, 1, 0, {0, 2}, 4.0F, 0);
  const float now = pull(kAnna, 2);
  EXPECT_FLOAT_EQ(now, start - 1.0F) << "read and current weights are the same";
  push(kBert, 1, 0, {2, 4}, 4.0F, 0);
  // g = 2 + 0.25 * 2 * 2 * (-1) = 1
  EXPECT_NEAR(pull(kAnna, 3), now - 0.5F * 1.0F, 1e-5);
  const wire::RecordPart part = *server_->log().part();
  for (const wire::Applied& applied : part.applied()) EXPECT_FALSE(applied.uncompensated());
}

TEST_F(AsyncServer, WithoutItsBaseAPushIsAppliedUncompensatedAndMarked) {
  make("delay-compensation = 0.25\nrecord = r\n");
  const float start = pull(kAnna, 1);
  push(kAnna, 1, 0, {0, 2}, 4.0F, 0);
  // Bert repeats its pull while its answers are lost, so the server drops the oldest weights.
  for (int64_t step = 1; step < 6; ++step) {
    pull(kBert, 1);
    push(kAnna, step + 1, step, {0, 2}, 0.0F, step);
  }
  push(kBert, 1, 0, {2, 4}, 4.0F, 0);
  EXPECT_NEAR(pull(kAnna, 2), start - 2.0F, 1e-5);
  const wire::RecordPart part = *server_->log().part();
  ASSERT_EQ(part.applied_size(), 7);
  EXPECT_TRUE(part.applied(6).uncompensated());
  EXPECT_EQ(part.applied(6).step(), 0);
  EXPECT_EQ(part.applied(6).lo(), 2);
  EXPECT_EQ(part.applied(6).read_versions(0), 0);
  EXPECT_EQ(server_->stats().recorded(), 7);
}

TEST_F(AsyncServer, LogsOnlyWhatCounts) {
  make("record = r\n");
  push(kAnna, 1, 0, {0, 2}, 4.0F, 0);
  push(kAnna, 1, 0, {0, 2}, 4.0F, 0);  // a repeat
  push(kBert, 1, 0, {0, 2}, 4.0F, 0);  // the same share from another worker
  push(kBert, 2, 0, {2, 4}, 4.0F, 1);
  ASSERT_EQ(server_->log().size(), 2);
  EXPECT_EQ(server_->log().part()->applied(1).read_versions(0), 1);
}

TEST_F(AsyncServer, LogsNothingWithoutARecord) {
  make("");
  push(kAnna, 1, 0, {0, 2}, 4.0F, 0);
  EXPECT_EQ(server_->log().size(), 0);
}

}  // namespace

}  // namespace pushpull::async_update_test

namespace pushpull {
namespace {

TEST(NeededFloor, IsTheClockMinusTheBoundUnderSsp) {
  const Barriers none{0, 0, 0, 100};
  EXPECT_EQ(needed_floor(3, none, 7), 4);
  EXPECT_EQ(needed_floor(3, none, 2), 0) << "never below the start";
  EXPECT_EQ(needed_floor(1000000, none, 50), 0);
}

TEST(NeededFloor, IsTheLastBarrierUnderAsync) {
  const Barriers every_ten{10, 0, 0, 100};
  EXPECT_EQ(needed_floor(std::nullopt, every_ten, 9), 0);
  EXPECT_EQ(needed_floor(std::nullopt, every_ten, 10), 10);
  EXPECT_EQ(needed_floor(std::nullopt, every_ten, 29), 20);
  EXPECT_EQ(needed_floor(5, every_ten, 22), 20);
  EXPECT_EQ(needed_floor(5, every_ten, 29), 24);
}

class SinglePushesTest : public RuleTest {};

TEST_F(SinglePushesTest, EachPushIsAnUpdateInOrderOfArrival) {
  make("strategy = async\n");
  give(kAnna, 0, {2, 4});
  give(kBert, 0, {0, 2});
  EXPECT_EQ(rule_->updates(), 0);
  EXPECT_GT(rule_->due_bytes(), 0);
  rule_->apply_due();
  EXPECT_EQ(rule_->due_bytes(), 0);
  EXPECT_EQ(rule_->updates(), 2);
  EXPECT_EQ(rule_->floor(), 1);
  EXPECT_EQ(rule_->staleness(), (std::map<int64_t, int64_t>{{0, 1}, {1, 1}}));
  ASSERT_EQ(observer_.commits.size(), 2U);
  EXPECT_EQ(observer_.commits[0].incarnation, kAnna);
}

TEST_F(SinglePushesTest, CommittedMicroBatchesAreNotAppliedAgain) {
  make("strategy = async\n");
  give(kAnna, 0, {0, 2});
  give(kBert, 0, {0, 2});
  rule_->apply_due();
  EXPECT_EQ(rule_->updates(), 1);
  ASSERT_EQ(observer_.commits.size(), 2U);
  EXPECT_TRUE(observer_.commits[0].counted);
  EXPECT_FALSE(observer_.commits[1].counted);
}

TEST_F(SinglePushesTest, PullWaitsForTheSlowestWorkerUnderSsp) {
  make("strategy = ssp:1\n");
  give(kAnna, 0, {0, 2});
  give(kAnna, 1, {0, 2});
  rule_->apply_due();
  EXPECT_EQ(version(1), 2);
  EXPECT_EQ(version(2), std::nullopt) << "step 0 lacks a share";
  give(kBert, 0, {2, 4});
  rule_->apply_due();
  EXPECT_EQ(version(2), 3);
}

TEST_F(SinglePushesTest, BarrierOpensWhenItsStepsAreInAndKeepsItsWeights) {
  make("strategy = async\neval-every = 1\n");
  give(kAnna, 0, {0, 2});
  rule_->apply_due();
  EXPECT_EQ(version(1), std::nullopt);
  give(kBert, 0, {2, 4});
  EXPECT_TRUE(rule_->apply_due());
  EXPECT_EQ(observer_.barriers, std::vector<int64_t>{1});
  give(kAnna, 1, {0, 2});
  rule_->apply_due();
  wire::Pull pull;
  pull.set_clock(1);
  pull.set_barrier(true);
  const auto answer = rule_->answer(pull, 0);
  ASSERT_TRUE(answer);
  EXPECT_TRUE(answer->at_barrier);
  EXPECT_EQ(answer->version, 2) << "not the newest version, 3";
}

TEST_F(SinglePushesTest, ImpossibleReadVersionIsRefusedWithBothNumbers) {
  make("strategy = async\n");
  wire::Push push;
  push.add_read_versions(1);
  const Checked refusal = rule_->check(push);
  EXPECT_EQ(reason_of(refusal), "push-reads");
  EXPECT_EQ(line_of(refusal),
            "[push-reads] expected a version that this server has had, 0 to 0, got 1");
}

}  // namespace
}  // namespace pushpull

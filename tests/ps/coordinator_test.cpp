#include "ps/run/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <cmath>
#include <string>
#include <vector>

#include "common/layout/slice_map.h"
#include "common/update/norm.h"
#include "tests/ps/coordinator_fixture.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

// ---- joining ----

TEST_F(CoordinatorTest, EveryHelloIsAnsweredWithTheJob) {
  make("strategy = sync\n");
  for (int i = 0; i < 3; ++i) {
    jobs_.clear();
    EXPECT_TRUE(hello(kAnna));
    collect();
    const wire::JobText& job = jobs_[peer_of(kAnna)];
    EXPECT_EQ(job.term_id(), kTermId);
    EXPECT_EQ(parse_job_text(job.ini(), "test"), job_of("strategy = sync\n"));
    EXPECT_EQ(job.coordinator(), "server 0 (head, pid 1)");
  }
  EXPECT_EQ(coordinator_->members().count(wire::ROLE_WORKER), 1);
}

TEST_F(CoordinatorTest, StartsWhenAllMembersHaveJoinedAndDeclared) {
  make("strategy = sync\n", 2, 2);
  join(kAnna);
  EXPECT_FALSE(coordinator_->wants_start());
  EXPECT_THAT(coordinator_->waiting_for(), HasSubstr("1 of 2 servers, 1 of 2 workers"));
  EXPECT_TRUE(hello(kBert));
  EXPECT_THAT(coordinator_->waiting_for(), HasSubstr("1 reading data"));
  EXPECT_TRUE(send(kBert, declaration(kBert)));
  EXPECT_FALSE(coordinator_->wants_start());
  EXPECT_TRUE(hello(50, wire::ROLE_SERVER));
  EXPECT_TRUE(coordinator_->wants_start());
  begin();
  tick();
  EXPECT_EQ(state_of(kAnna).phase(), wire::PHASE_TRAINING);
  EXPECT_EQ(state_of(kAnna).end_step(), 10);
  EXPECT_EQ(state_of(kAnna).data_endpoints_size(), 2);
  EXPECT_EQ(state_of(kAnna).data_endpoints(1), "tcp://127.0.0.1:6050");
  EXPECT_EQ(shares_of(kAnna), (std::vector<Range>{{0, 2}}));
  EXPECT_EQ(shares_of(kBert), (std::vector<Range>{{2, 4}}));
  EXPECT_EQ(state_of(50).rank(), 1);
  EXPECT_EQ(state_of(50).workers_size(), 2);
  EXPECT_EQ(from_wire(state_of(50).tensors()), table_of(3000));
  EXPECT_EQ(coordinator_->waiting_for(), "");
}

TEST_F(CoordinatorTest, RanksFollowTheOrderOfTheHellos) {
  make("strategy = sync\n");
  hello(kAnna);
  join(kBert);
  send(kAnna, declaration(kAnna));
  tick();
  EXPECT_EQ(state_of(kAnna).rank(), 0);
  EXPECT_EQ(state_of(kBert).rank(), 1);
  EXPECT_TRUE(state_of(kAnna).declared());
}

TEST_F(CoordinatorTest, SurplusServerIsRefusedWithTheWayOut) {
  make("strategy = sync\non-server-loss = abort\n");
  hello(50, wire::ROLE_SERVER);
  EXPECT_THAT(refusal_of(50), HasSubstr("--servers 2"));
  EXPECT_EQ(coordinator_->members().count(wire::ROLE_SERVER), 1);
}

TEST_F(CoordinatorTest, ServerWithoutAReachableEndpointIsRefused) {
  make("strategy = sync\n", 2);
  for (const char* endpoint : {"garbage", "tcp://", "tcp://host:*", "ipc:///tmp/x"}) {
    EXPECT_FALSE(hello(50, wire::ROLE_SERVER, endpoint)) << endpoint;
    EXPECT_EQ(reason_, "bad-endpoint");
  }
  EXPECT_EQ(coordinator_->members().count(wire::ROLE_SERVER), 1);
}

TEST_F(CoordinatorTest, ServerIsNoMemberUntilItListens) {
  make("strategy = sync\n", 2);
  EXPECT_TRUE(hello(50, wire::ROLE_SERVER, ""));
  EXPECT_EQ(coordinator_->members().count(wire::ROLE_SERVER), 1);
  EXPECT_TRUE(hello(50, wire::ROLE_SERVER, "tcp://127.0.0.1:7"));
  EXPECT_EQ(coordinator_->members().count(wire::ROLE_SERVER), 2);
}

TEST_F(CoordinatorTest, InvalidHellosAreRefused) {
  make("strategy = sync\n");
  EXPECT_FALSE(hello(0));
  EXPECT_FALSE(hello(kAnna, wire::ROLE_UNSET));
  EXPECT_FALSE(hello(kAnna, static_cast<wire::Role>(9)));
  EXPECT_EQ(coordinator_->members().all().size(), 1U);
}

TEST_F(CoordinatorTest, RepeatedHellosOfStrangersAreBounded) {
  train("strategy = sync\n");
  int taken = 0;
  for (uint64_t who = 1000; who < 7000; ++who) taken += hello(who) ? 1 : 0;
  EXPECT_EQ(taken, 6000) << "later hellos replace earlier ones";
  EXPECT_LE(coordinator_->members().all().size(), 4096U + 3);
  live(12'000, {kAnna, kBert});
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_TRAINING);
  EXPECT_TRUE(hello(kCarl)) << "room is free again";
}

TEST_F(CoordinatorTest, HelloWithEndlessWordsIsRefused) {
  make("strategy = sync\n");
  Message message;
  message.header.mutable_hello()->set_role(wire::ROLE_WORKER);
  message.header.mutable_hello()->set_incarnation(kAnna);
  message.header.mutable_hello()->set_host(std::string(1 << 20, 'x'));
  EXPECT_EQ(why_not(kAnna, message), "long-hello");
}

TEST_F(CoordinatorTest, SecondServerOfAnAddressIsRefused) {
  make("strategy = sync\n", 3);
  EXPECT_TRUE(hello(50, wire::ROLE_SERVER, "tcp://10.0.0.1:7000"));
  EXPECT_TRUE(hello(50, wire::ROLE_SERVER, "tcp://10.0.0.1:7000")) << "a repeat is fine";
  EXPECT_EQ(refusal_of(50), "");
  EXPECT_TRUE(hello(51, wire::ROLE_SERVER, "tcp://10.0.0.1:7000"));
  EXPECT_THAT(refusal_of(51), HasSubstr("tcp://10.0.0.1:7000 is the address of server 1 (node"));
  EXPECT_EQ(coordinator_->members().count(wire::ROLE_SERVER), 2);
}

TEST_F(CoordinatorTest, UndeclaredMemberCanNeitherEndTheTrainingNorEvaluate) {
  train("strategy = sync\neval-every = 4\n");
  hello(kCarl);
  Message message;
  message.header.mutable_eval_result()->set_incarnation(kCarl);
  message.header.mutable_eval_result()->set_step(4);
  EXPECT_EQ(why_not(kCarl, message), "undeclared");
  EXPECT_TRUE(leave(kCarl, static_cast<int>(ErrorCode::kNotFinite), "[train] so what"));
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_TRAINING);
}

TEST_F(CoordinatorTest, InvalidSampleCountsAreRefused) {
  make("strategy = sync\n");
  for (const int64_t samples : {int64_t{-1}, INT64_MAX}) {
    hello(kAnna);
    Message message = declaration(kAnna);
    message.header.mutable_declare()->set_test_samples(samples);
    EXPECT_EQ(why_not(kAnna, message), "bad-declaration");
    hello(kAnna);
    message = declaration(kAnna);
    message.header.mutable_declare()->set_train_samples(samples);
    EXPECT_EQ(why_not(kAnna, message), "bad-declaration");
  }
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_GATHERING);
  join(kAnna);
  EXPECT_FALSE(coordinator_->wants_start()) << "one of two workers";
}

TEST_F(CoordinatorTest, EvaluationWithTooManyChunksIsRefusedWithTheWayOut) {
  make("strategy = sync\nglobal-batch = 8\nmicro-batch = 1\n");
  hello(kAnna);
  Message message = declaration(kAnna);
  message.header.mutable_declare()->set_test_samples(500'001);
  send(kAnna, message);
  EXPECT_EQ(coordinator_->failure_code(), ErrorCode::kUsage);
  EXPECT_THAT(coordinator_->failure_text(), HasSubstr("raise micro-batch or lower test-samples"));
}

TEST_F(CoordinatorTest, FailedStartIsNotRetried) {
  make("strategy = sync\n");
  join(kAnna);
  join(kBert);
  ASSERT_TRUE(coordinator_->wants_start());
  coordinator_->fail(ErrorCode::kData, "[resume] other tensors");
  EXPECT_FALSE(coordinator_->wants_start());
}

TEST_F(CoordinatorTest, SpareHasNoRankAndNoWork) {
  train("strategy = sync\n");
  join(kCarl);
  EXPECT_THAT(notices(), HasSubstr("worker (node, pid 1103) joined as a spare"));
  tick();
  EXPECT_EQ(state_of(kCarl).rank(), -1);
  EXPECT_TRUE(shares_of(kCarl).empty());
  EXPECT_TRUE(run_->leases(kCarl).empty());
}

TEST_F(CoordinatorTest, MoreWorkersThanMicroBatchesGetANotice) {
  make("strategy = sync\n", 1, 6);
  for (uint64_t who = 101; who <= 106; ++who) join(who);
  begin();
  tick();
  EXPECT_EQ(run_->shares(), 4);
  EXPECT_THAT(notices(), HasSubstr("2 workers have nothing to compute"));
}

class Mismatch : public CoordinatorTest {
 protected:
  template <class Spoil>
  std::string refusal(const std::string& keys, const Spoil& spoil) {
    make(keys);
    join(kAnna);
    hello(kBert);
    Message message = declaration(kBert);
    spoil(*message.header.mutable_declare());
    EXPECT_TRUE(send(kBert, message));
    EXPECT_EQ(coordinator_->phase(), wire::PHASE_GATHERING) << "the job is not affected";
    EXPECT_FALSE(coordinator_->wants_start());
    return refusal_of(kBert);
  }
};

TEST_F(Mismatch, AnotherModelIsRefusedWithItsFirstDifference) {
  const auto other_shape = [](wire::Declare& d) { d.mutable_tensors(1)->set_shape(0, 5); };
  EXPECT_THAT(refusal("strategy = sync\n", other_shape), HasSubstr("norm.running_mean [5]"));
}

TEST_F(Mismatch, OtherDataAreRefused) {
  EXPECT_THAT(refusal("strategy = sync\n", [](wire::Declare& d) { d.set_data_digest("ffff"); }),
              HasSubstr("digest 0123456789ab"));
  EXPECT_THAT(refusal("strategy = sync\n", [](wire::Declare& d) { d.set_train_samples(63); }),
              HasSubstr("63 + 16"));
}

TEST_F(Mismatch, SyncRefusesOtherArithmeticAndNamesBoth) {
  const auto other = [](wire::Declare& d) { d.set_numerics("cpu avx512"); };
  const std::string text = refusal("strategy = sync\n", other);
  EXPECT_THAT(text, HasSubstr("cpu avx2"));
  EXPECT_THAT(text, HasSubstr("cpu avx512"));
}

class CoordinatorChoices : public CoordinatorTest {
 protected:
  // Both workers join, each with its own choices; then training starts.
  void train_with(const std::string& keys, const Start& start) {
    make(keys);
    for (const uint64_t who : {kAnna, kBert}) {
      hello(who);
      Message message = declaration(who);
      message.header.mutable_declare()->set_choices("linear " + std::to_string(who));
      EXPECT_TRUE(send(who, message));
    }
    begin(start);
    tick();
  }
};

// Algorithms are chosen by time, so two workers of one kind may choose differently.
TEST_F(CoordinatorChoices, ChoicesOfTheFirstWorkerHoldForAll) {
  train_with("strategy = sync\n", {});
  const std::string first = "linear " + std::to_string(kAnna);
  EXPECT_EQ(coordinator_->declaration().choices, first);
  for (const uint64_t who : {kAnna, kBert}) EXPECT_EQ(state_of(who).choices(), first);
}

TEST_F(CoordinatorChoices, ResumedRunKeepsTheChoicesOfItsCheckpoint) {
  train_with("strategy = sync\n", {.choices = "linear before"});
  EXPECT_EQ(coordinator_->declaration().choices, "linear before");
  EXPECT_EQ(state_of(kBert).choices(), "linear before");
}

TEST_F(CoordinatorChoices, EachWorkerKeepsItsChoicesIfBitsMayDiffer) {
  train_with("strategy = async\n", {});
  EXPECT_EQ(state_of(kBert).choices(), "");
}

TEST_F(CoordinatorTest, ChoicesBeyondTheLimitHurtOnlyTheirSender) {
  make("strategy = sync\n");
  hello(kCarl);
  Message message = declaration(kCarl);
  message.header.mutable_declare()->set_choices(std::string((64 << 10) + 1, 'a'));
  EXPECT_EQ(why_not(kCarl, message), "bad-declaration");
  EXPECT_THAT(refusal_of(kCarl), HasSubstr("65536"));
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_GATHERING);
}

TEST_F(Mismatch, AsyncTakesOtherArithmetic) {
  make("strategy = async\n");
  join(kAnna);
  hello(kBert);
  Message message = declaration(kBert);
  message.header.mutable_declare()->set_numerics("cpu avx512");
  EXPECT_TRUE(send(kBert, message));
  EXPECT_TRUE(coordinator_->wants_start());
}

TEST_F(CoordinatorTest, InvalidTableHurtsOnlyItsSender) {
  make("strategy = sync\n");
  hello(kCarl);
  Message message = declaration(kCarl);
  message.header.mutable_declare()->mutable_tensors(0)->set_shape(0, INT64_MAX);
  EXPECT_EQ(why_not(kCarl, message), "bad-declaration");
  EXPECT_THAT(refusal_of(kCarl), HasSubstr("layer.weight"));
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_GATHERING);
  join(kAnna);
  join(kBert);
  EXPECT_TRUE(coordinator_->wants_start());
}

TEST_F(CoordinatorTest, JobThatDoesNotFitItsDataFails) {
  make("strategy = sync\n");
  hello(kAnna);
  Message message = declaration(kAnna);
  message.header.mutable_declare()->set_train_samples(5);
  EXPECT_TRUE(send(kAnna, message));
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_FAILED);
  EXPECT_THAT(coordinator_->failure_text(), HasSubstr("train-samples"));
}

TEST_F(CoordinatorTest, MessagesOfNonMembersAreRefused) {
  train("strategy = sync\n");
  EXPECT_EQ(why_not(999, declaration(999)), "unknown-member");
  EXPECT_TRUE(heartbeat(999));
  EXPECT_THAT(refusal_of(999), HasSubstr("given up"));
  Message message;
  message.header.mutable_eval_result()->set_incarnation(999);
  EXPECT_EQ(why_not(999, message), "unknown-member");
  message.header.mutable_norms()->set_incarnation(kAnna);
  EXPECT_EQ(why_not(kAnna, message), "wrong-role") << "a worker may not send norms";
  message.header.mutable_state();
  EXPECT_EQ(why_not(kAnna, message), "wrong-type");
  message.header.mutable_exchange();
  EXPECT_EQ(why_not(kAnna, message), "wrong-type");
}

TEST_F(CoordinatorTest, NormsOfStepsOutsideTheRunAreRefused) {
  make("strategy = sync\nclip-norm = 1\n", 2);
  hello(50, wire::ROLE_SERVER);
  Message message;
  message.header.mutable_norms()->set_incarnation(50);
  EXPECT_EQ(why_not(50, message), "not-training");
  join(kAnna);
  join(kBert);
  begin();
  for (const int64_t step : {int64_t{-1}, int64_t{10}, INT64_MAX, INT64_MIN}) {
    message.header.mutable_norms()->set_step(step);
    EXPECT_EQ(why_not(50, message), "wrong-step") << step;
  }
}

TEST_F(CoordinatorTest, TotalNormGoesToAllServers) {
  make("strategy = sync\nclip-norm = 1\n", 2);
  hello(50, wire::ROLE_SERVER);
  join(kAnna);
  join(kBert);
  begin();
  tick();
  const SliceMap map(3000, 4096, 2);
  std::vector<PeerId> recipients;
  for (const uint64_t server : {kSelf, uint64_t{50}}) {
    Message message;
    message.header.mutable_norms()->set_incarnation(server);
    for (const int slice : map.slices_of(server == kSelf ? 0 : 1)) {
      const double square = 3.0;
      for (const NormPart& part : norm_parts({&square, 1}, map.blocks(slice).lo, map.blocks())) {
        wire::NormNode* node = message.header.mutable_norms()->add_nodes();
        node->set_lo(part.blocks.lo);
        node->set_hi(part.blocks.hi);
        node->set_squares(part.squares);
      }
    }
    EXPECT_TRUE(send(server, message));
    EXPECT_TRUE(send(server, message)) << "a repeat";
    for (const Outgoing& out : coordinator_->take_outgoing()) {
      ASSERT_TRUE(out.message.header.has_norm_total());
      EXPECT_DOUBLE_EQ(out.message.header.norm_total().norm(), 3.0);
      recipients.push_back(out.to);
    }
  }
  EXPECT_THAT(recipients, testing::UnorderedElementsAre("", peer_of(50), peer_of(50)));
}

// ---- statistics ----

TEST_F(CoordinatorTest, InvalidStatisticsAreRefused) {
  train("strategy = sync\n");
  Message message;
  wire::Heartbeat* heartbeat = message.header.mutable_heartbeat();
  heartbeat->set_incarnation(kAnna);
  heartbeat->mutable_stats()->set_cpu_seconds(std::nan(""));
  EXPECT_EQ(why_not(kAnna, message), "bad-stats");
  heartbeat->mutable_stats()->set_cpu_seconds(1.5);
  EXPECT_TRUE(send(kAnna, message));
}

TEST_F(CoordinatorTest, UsageOfALostWorkerStaysInTheTotals) {
  train("strategy = sync\non-worker-loss = continue\n");
  Message message;
  wire::Heartbeat* heartbeat = message.header.mutable_heartbeat();
  heartbeat->set_incarnation(kAnna);
  heartbeat->mutable_stats()->set_cpu_seconds(1.5);
  heartbeat->mutable_stats()->set_computed(3);
  EXPECT_TRUE(send(kAnna, message));
  EXPECT_EQ(coordinator_->departures().totals().tasks, 0);
  leave(kAnna, 9, "gone");
  EXPECT_EQ(coordinator_->departures().totals().workers.cpu_seconds, 1.5);
  EXPECT_EQ(coordinator_->departures().totals().tasks, 3);
}

TEST_F(CoordinatorTest, OpenedBarriersAreReportedOnce) {
  train("strategy = sync\neval-every = 5\n");
  EXPECT_TRUE(heard_.barriers.empty());
  for (int i = 0; i < 2; ++i) run_->on_barrier_open(5);
  EXPECT_EQ(heard_.barriers, (std::vector<std::pair<int64_t, int64_t>>{{5, 40}}));
}

// ---- the end ----

TEST_F(CoordinatorTest, EndsWhenAllIsComputedEvaluatedAndOnDisk) {
  train("strategy = sync\n");
  commit_all(10);
  run_->on_barrier_open(10);
  tick();
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_TRAINING);
  EXPECT_EQ(write_snapshots(), 10);
  tick();
  EXPECT_EQ(state_of(kSelf).released_barrier(), 10);
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_TRAINING) << "the last step is not evaluated yet";
  evaluate(10);
  tick();
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_FINISHING);
  EXPECT_FALSE(coordinator_->wants_summary()) << "the last statistics are missing";
  const int64_t version = state_of(kAnna).version();
  heartbeat(kAnna, version);
  heartbeat(kBert, version - 1);
  tick();
  EXPECT_FALSE(coordinator_->wants_summary());
  heartbeat(kBert, version);
  tick();
  EXPECT_TRUE(coordinator_->wants_summary());
  coordinator_->finish();
  tick();
  EXPECT_EQ(state_of(kBert).phase(), wire::PHASE_FINISHED);
  EXPECT_FALSE(coordinator_->over());
  leave(kAnna, 0);
  leave(kBert, 0);
  tick();
  EXPECT_TRUE(coordinator_->over());
  EXPECT_EQ(run_->committed().counts().samples, 80);
}

TEST_F(CoordinatorTest, WaitForLastStatisticsIsBounded) {
  train("strategy = sync\nheartbeat-timeout = 3600\n");
  commit_all(10);
  run_->on_barrier_open(10);
  EXPECT_EQ(write_snapshots(), 10);
  evaluate(10);
  tick();
  tick(5001);
  EXPECT_TRUE(coordinator_->wants_summary());
  coordinator_->finish();
  tick(5001);
  EXPECT_TRUE(coordinator_->over());
}

TEST_F(CoordinatorTest, EvaluationsOfStepsWithoutABarrierAreRefused) {
  train("strategy = sync\neval-every = 4\n");
  for (const int64_t step : {int64_t{-4}, int64_t{0}, int64_t{3}, int64_t{11}, INT64_MAX}) {
    Message message;
    message.header.mutable_eval_result()->set_incarnation(kAnna);
    message.header.mutable_eval_result()->set_step(step);
    EXPECT_EQ(why_not(kAnna, message), "no-evaluation") << step;
  }
  evaluate(4);
  EXPECT_EQ(run_->evaluations().newest().value().step, 4);
}

TEST_F(CoordinatorTest, JoinerAfterTheEndIsToldHowTheJobEnded) {
  train("strategy = sync\n");
  coordinator_->fail(ErrorCode::kFailed, "[job] no luck");
  hello(kCarl);
  tick();
  EXPECT_EQ(refusal_of(kCarl), "[join] the job is over: [job] no luck");
}

TEST_F(CoordinatorTest, FirstFailureCounts) {
  train("strategy = sync\n");
  coordinator_->fail(ErrorCode::kIo, "[out] disk full");
  coordinator_->fail(ErrorCode::kPeerLost, "[job] lost worker 1");
  EXPECT_EQ(coordinator_->failure_text(), "[out] disk full");
  EXPECT_EQ(coordinator_->failure_code(), ErrorCode::kIo);
}

TEST_F(CoordinatorTest, UnchangedStatesAreRepeated) {
  train("strategy = sync\n");
  states_.clear();
  tick(100);
  EXPECT_TRUE(states_.empty());
  tick(500);
  EXPECT_EQ(states_.size(), 3U);
}

}  // namespace
}  // namespace pushpull

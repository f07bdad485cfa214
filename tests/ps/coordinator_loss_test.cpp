// Tests of members that leave or are lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ps/coordinator_fixture.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

TEST_F(CoordinatorTest, AbortEndsTheJobAndNamesTheLostWorker) {
  train("strategy = sync\non-worker-loss = abort\nheartbeat-timeout = 5\n");
  commit(kAnna, 0, {0, 2});
  live(6000, {kAnna});
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_FAILED);
  EXPECT_EQ(coordinator_->failure_code(), ErrorCode::kPeerLost);
  EXPECT_THAT(coordinator_->failure_text(), HasSubstr("worker 1 (node, pid 1102) at step 0"));
  EXPECT_THAT(coordinator_->failure_text(), HasSubstr("no heartbeat for 5."));
  EXPECT_EQ(state_of(kAnna).phase(), wire::PHASE_FAILED);
  EXPECT_EQ(state_of(kAnna).text(), coordinator_->failure_text());
  ASSERT_TRUE(coordinator_->culprit());
  EXPECT_EQ(coordinator_->culprit()->pid, 1102);
  EXPECT_FALSE(coordinator_->over());
  leave(kAnna, 5);
  tick();
  EXPECT_TRUE(coordinator_->over());
}

TEST_F(CoordinatorTest, ClosedConnectionIsNoticedSoonerThanSilence) {
  train("strategy = sync\non-worker-loss = abort\nheartbeat-timeout = 10\n");
  coordinator_->on_disconnect(now_, peer_of(kBert));
  live(2500, {kAnna});
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_FAILED);
  EXPECT_THAT(coordinator_->failure_text(), HasSubstr("connection closed"));
}

TEST_F(CoordinatorTest, WaitGivesTheShareToTheNextWorkerThatJoins) {
  train("strategy = sync\non-worker-loss = wait\nheartbeat-timeout = 5\n");
  commit_all(3);
  commit(kBert, 3, {2, 4});
  live(6000, {kAnna});
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_TRAINING);
  EXPECT_THAT(notices(), HasSubstr("waiting for a replacement"));
  EXPECT_EQ(shares_of(kAnna), (std::vector<Range>{{0, 2}})) << "no worker takes two shares";
  EXPECT_EQ(state_of(kSelf).workers_size(), 1) << "servers refuse the lost worker's pushes";
  join(kCarl);
  tick();
  EXPECT_EQ(state_of(kCarl).rank(), 1);
  ASSERT_EQ(shares_of(kCarl), (std::vector<Range>{{2, 4}}));
  EXPECT_EQ(state_of(kCarl).assigned(0).from_step(), 3)
      << "its last push may not have reached every server";
}

TEST_F(CoordinatorTest, AWorkerThatLeavesEarlyGivesItsWorkToTheOthersUnderAnyPolicy) {
  for (const std::string policy : {"abort", "wait", "continue"}) {
    train("strategy = sync\non-worker-loss = " + policy + "\nheartbeat-timeout = 5\n");
    commit_all(3);
    leave(kBert, static_cast<int>(ErrorCode::kStopped), "its program ends");
    tick();
    EXPECT_EQ(coordinator_->phase(), wire::PHASE_TRAINING) << policy;
    EXPECT_THAT(notices(),
                HasSubstr("has left at step 3: its program has ended; the others go on"));
    EXPECT_EQ(shares_of(kAnna), (std::vector<Range>{{0, 2}, {2, 4}})) << policy;
    EXPECT_TRUE(coordinator_->take_given_up().empty()) << "no other process must come in its place";
    EXPECT_FALSE(coordinator_->departures().none_left());
    leave(kAnna, static_cast<int>(ErrorCode::kStopped), "its program ends");
    tick();
    EXPECT_TRUE(coordinator_->departures().none_left());
    EXPECT_EQ(coordinator_->training()->cut_without_workers(), 3);
  }
}

TEST_F(CoordinatorTest, AWorkerThatLeavesEarlyIsLostBeforeTheStart) {
  make("strategy = sync\n", 2);
  join(kAnna);
  leave(kAnna, static_cast<int>(ErrorCode::kStopped), "its program ends");
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_GATHERING);
  EXPECT_THAT(notices(), HasSubstr("its program has ended; the job waits for another"));
}

TEST_F(CoordinatorTest, WaitPromotesASpareAtOnce) {
  train("strategy = sync\non-worker-loss = wait\nheartbeat-timeout = 5\n");
  join(kCarl);
  leave(kBert, 1, "killed");
  tick();
  EXPECT_EQ(shares_of(kCarl), (std::vector<Range>{{2, 4}}));
  EXPECT_EQ(state_of(kCarl).rank(), 1);
}

TEST_F(CoordinatorTest, WaitEndsAfterTheReplacementTimeout) {
  train("strategy = sync\non-worker-loss = wait\nreplacement-timeout = 20\n");
  leave(kBert, 1, "killed");
  live(19000, {kAnna});
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_TRAINING);
  live(2000, {kAnna});
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_FAILED);
  EXPECT_THAT(coordinator_->failure_text(), HasSubstr("micro-batches 2 to 3"));
  EXPECT_THAT(coordinator_->failure_text(), HasSubstr("replacement-timeout = 20.0 s"));
}

TEST_F(CoordinatorTest, ContinueGivesTheShareToTheOthers) {
  train("strategy = ssp:2\non-worker-loss = continue\n");
  leave(kBert, 1, "killed");
  tick();
  EXPECT_EQ(shares_of(kAnna), (std::vector<Range>{{0, 2}, {2, 4}}));
  EXPECT_THAT(notices(), HasSubstr("the others go on"));
}

TEST_F(CoordinatorTest, DeviceFailureOfAWorkerIsALossNotTheEnd) {
  train("strategy = ssp:2\non-worker-loss = continue\n");
  leave(kBert, static_cast<int>(ErrorCode::kDevice),
        "[cuda] cudaEventQuery: unspecified launch failure");
  tick();
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_TRAINING);
  EXPECT_EQ(shares_of(kAnna), (std::vector<Range>{{0, 2}, {2, 4}}));
  EXPECT_THAT(notices(), HasSubstr("unspecified launch failure"));
}

TEST_F(CoordinatorTest, AsyncReassignsTheLeasesOfALostWorker) {
  train("strategy = async\non-worker-loss = continue\n");
  const auto of_bert = run_->leases(kBert);
  ASSERT_EQ(of_bert.size(), 2U);
  leave(kBert, 1, "killed");
  tick();
  EXPECT_TRUE(run_->leases(kBert).empty());
  EXPECT_EQ(run_->leases(kAnna)[0].step(), of_bert[0].step());
}

TEST_F(CoordinatorTest, AsyncWithoutAnyWorkerEndsAfterTheReplacementTimeout) {
  train("strategy = async\non-worker-loss = continue\nreplacement-timeout = 20\n");
  leave(kAnna, 1, "killed");
  leave(kBert, 1, "killed");
  live(19000, {});
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_TRAINING);
  live(2000, {});
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_FAILED);
  EXPECT_THAT(coordinator_->failure_text(), HasSubstr("no worker is left"));
  EXPECT_FALSE(coordinator_->culprit());
}

TEST_F(CoordinatorTest, LostSpareCostsNothing) {
  train("strategy = sync\non-worker-loss = abort\n");
  join(kCarl);
  leave(kCarl, 1, "killed");
  tick();
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_TRAINING);
}

TEST_F(CoordinatorTest, LostServerEndsTheJobAndPointsAtTheCheckpoint) {
  make("strategy = async\non-server-loss = abort\n", 2);
  hello(50, wire::ROLE_SERVER);
  join(kAnna);
  join(kBert);
  begin();
  live(11000, {kAnna, kBert});
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_FAILED);
  EXPECT_THAT(coordinator_->failure_text(), HasSubstr("server 1 (node, pid 1050)"));
  EXPECT_THAT(coordinator_->failure_text(), HasSubstr("last checkpoint"));
  ASSERT_TRUE(coordinator_->culprit());
  EXPECT_EQ(coordinator_->culprit()->pid, 1050);
  EXPECT_EQ(coordinator_->culprit()->host, "node");
  EXPECT_THAT(coordinator_->culprit()->reason, HasSubstr("no heartbeat for"));
}

// A job of two servers that continues by peers; server 51 is in the place of the lost server 50.
class JobWithoutItsServer : public CoordinatorTest {
 protected:
  void lose_and_replace() {
    make("strategy = sync\nrecovery = peers\n", 2);
    hello(50, wire::ROLE_SERVER);
    join(kAnna);
    join(kBert);
    begin();
    run_->copied(0, 0);
    leave(50, 5, "killed");
    hello(51, wire::ROLE_SERVER);
    tick();
    EXPECT_FALSE(states_.contains(peer_of(51))) << "it gets its weights first";
  }
};

TEST_F(JobWithoutItsServer, ReplacementWithoutWeightsHearsOfAFailure) {
  lose_and_replace();
  coordinator_->fail(ErrorCode::kIo, "[out] full");
  tick();
  EXPECT_EQ(state_of(51).phase(), wire::PHASE_FAILED);
  EXPECT_EQ(state_of(51).text(), "[out] full");
}

TEST_F(JobWithoutItsServer, EndDoesNotWaitForAReplacementWithoutWeights) {
  lose_and_replace();
  write_snapshots();
  commit_all(10);
  evaluate(10);
  run_->on_barrier_open(10);
  EXPECT_EQ(write_snapshots(), 10);
  tick();
  ASSERT_EQ(coordinator_->phase(), wire::PHASE_FINISHING);
  for (const uint64_t who : {kAnna, kBert}) heartbeat(who, state_of(who).version());
  tick();
  EXPECT_TRUE(coordinator_->wants_summary());
  coordinator_->finish();
  tick();
  EXPECT_EQ(state_of(51).phase(), wire::PHASE_FINISHED);
}

TEST_F(CoordinatorTest, DeviceFailureOfServerZeroIsToldToAll) {
  train("strategy = sync\non-worker-loss = abort\n");
  coordinator_->fail_here(ErrorCode::kDevice, "[device] cuda:0 is lost");
  tick();
  EXPECT_EQ(state_of(kAnna).code(), static_cast<int>(ErrorCode::kDevice));
  EXPECT_EQ(state_of(kAnna).text(),
            "[job] lost server 0 (head, pid 1) at step 0: [device] cuda:0 is lost; its weights are "
            "gone, resume from the last checkpoint");
  leave(kBert, static_cast<int>(ErrorCode::kDevice), "[device] cuda:1 is lost");
  ASSERT_TRUE(coordinator_->culprit());
  EXPECT_EQ(coordinator_->culprit()->pid, 1) << "a later failure is not the cause";
  EXPECT_EQ(coordinator_->culprit()->host, "head");
  EXPECT_EQ(coordinator_->culprit()->reason, "[device] cuda:0 is lost");
}

TEST_F(CoordinatorTest, FailureOfServerZeroNamesIt) {
  make("strategy = sync\n");
  coordinator_->fail_here(ErrorCode::kIo, "[out] disk full");
  EXPECT_EQ(coordinator_->failure_text(), "[out] disk full (server 0 (head, pid 1))");
}

TEST_F(CoordinatorTest, WorkerLostBeforeTheStartIsReplacedByTheNext) {
  make("strategy = sync\non-worker-loss = abort\n");
  join(kAnna);
  join(kBert);
  ASSERT_TRUE(coordinator_->wants_start());
  live(11000, {kAnna});
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_GATHERING);
  EXPECT_FALSE(coordinator_->wants_start());
  EXPECT_THAT(notices(), HasSubstr("before the start"));
  join(kCarl);
  EXPECT_TRUE(coordinator_->wants_start());
}

TEST_F(CoordinatorTest, EvaluationCountsOnlyFromOwnersOfTheChunks) {
  train("strategy = sync\neval-every = 4\n");
  join(kCarl);
  tick();
  evaluate(kCarl, 4);
  evaluate(kAnna, 4);
  EXPECT_FALSE(run_->evaluations().newest()) << "a spare and one of two owners reported";
  evaluate(kBert, 4);
  EXPECT_TRUE(run_->evaluations().newest());
}

TEST_F(CoordinatorTest, NonFiniteGradientEndsTheJobUnderAnyPolicy) {
  train("strategy = async\non-worker-loss = continue\n");
  run_->leases(kBert);
  leave(kBert, static_cast<int>(ErrorCode::kNotFinite), "[train] the loss is nan");
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_FAILED);
  EXPECT_EQ(coordinator_->failure_code(), ErrorCode::kNotFinite);
  EXPECT_THAT(coordinator_->failure_text(), HasSubstr("[train] the loss is nan (worker 1"));
  ASSERT_TRUE(coordinator_->culprit());
  EXPECT_EQ(coordinator_->culprit()->pid, 1102);
}

TEST_F(CoordinatorTest, StrangeExitCodesDoNotMakeABrokenRunASuccess) {
  for (const int code : {256, -1, 512, 1 << 30}) {
    train("strategy = sync\non-worker-loss = abort\n");
    EXPECT_TRUE(leave(kAnna, code, "[worker] strange"));
    EXPECT_EQ(coordinator_->phase(), wire::PHASE_FAILED);
    EXPECT_EQ(coordinator_->failure_code(), ErrorCode::kPeerLost) << code;
  }
}

TEST_F(CoordinatorTest, MemberThatReturnsAfterItWasGivenUpIsRefused) {
  train("strategy = sync\non-worker-loss = wait\n");
  live(11000, {kAnna});
  EXPECT_TRUE(heartbeat(kBert));
  EXPECT_THAT(refusal_of(kBert), HasSubstr("given up"));
}

TEST_F(CoordinatorTest, UnderContinueALaterWorkerComputes) {
  train("strategy = sync\non-worker-loss = continue\n");
  leave(kBert, 1, "killed");
  tick();
  EXPECT_EQ(shares_of(kAnna), (std::vector<Range>{{0, 2}, {2, 4}}));
  join(kCarl);
  tick();
  EXPECT_EQ(state_of(kCarl).rank(), 1);
  EXPECT_EQ(shares_of(kCarl).size(), 1U);
  EXPECT_EQ(shares_of(kAnna).size(), 1U);
}

TEST_F(CoordinatorTest, UnderContinueMaxWorkersLimitsTheMembers) {
  train("strategy = async\non-worker-loss = continue\nmax-workers = 3\n");
  join(kCarl);
  join(104);
  tick();
  EXPECT_EQ(state_of(kCarl).rank(), 2);
  EXPECT_THAT(notices(), HasSubstr("worker 2 (node, pid 1103) joined, and takes part"));
  EXPECT_FALSE(run_->leases(kCarl).empty());
  EXPECT_EQ(state_of(104).rank(), -1) << "it is a spare";
  EXPECT_TRUE(run_->leases(104).empty());
  leave(kAnna, 1, "killed");
  tick();
  EXPECT_EQ(state_of(104).rank(), 0);
}

TEST_F(CoordinatorTest, UnderContinueSparesTakePartFromTheStart) {
  make("strategy = async\non-worker-loss = continue\n");
  for (const uint64_t who : {kAnna, kBert, kCarl}) join(who);
  tick();
  EXPECT_EQ(state_of(kCarl).rank(), -1);
  begin();
  tick();
  EXPECT_EQ(state_of(kCarl).rank(), 2);
}

// ---- backup:B ----

class BackupJob : public CoordinatorTest {
 protected:
  // Three workers with shares of 1, 1 and 2 micro-batches.
  void train_three(const std::string& keys, int servers = 1) {
    make("strategy = backup:1\nheartbeat-timeout = 5\neval-every = 2\n" + keys, servers, 3);
    if (servers > 1) hello(50, wire::ROLE_SERVER);
    for (const uint64_t who : {kAnna, kBert, kCarl}) join(who);
    ASSERT_TRUE(coordinator_->wants_start());
    begin();
    tick();
  }
  bool arrived(uint64_t server, int64_t step, std::initializer_list<int> shares) {
    Message message;
    message.header.mutable_arrived()->set_incarnation(server);
    message.header.mutable_arrived()->set_step(step);
    for (const int lo : shares) message.header.mutable_arrived()->add_lo(lo);
    return send(server, message);
  }
  std::vector<PeerId> chosen_receivers() {
    std::vector<PeerId> out;
    for (const Outgoing& o : coordinator_->take_outgoing()) {
      if (o.message.header.has_chosen()) out.push_back(o.to);
    }
    return out;
  }
};

TEST_F(BackupJob, AllServersGetTheSameSetAndRepeatsGetItAgain) {
  train_three("", 2);
  chosen_receivers();
  EXPECT_TRUE(arrived(kSelf, 0, {0, 1, 2}));
  EXPECT_TRUE(arrived(50, 0, {2}));
  EXPECT_TRUE(chosen_receivers().empty());
  EXPECT_TRUE(arrived(50, 0, {0, 2}));
  EXPECT_THAT(chosen_receivers(), testing::UnorderedElementsAre("", peer_of(50)));
  EXPECT_TRUE(arrived(50, 0, {0, 1, 2}));
  EXPECT_THAT(chosen_receivers(), testing::ElementsAre(peer_of(50)));
  EXPECT_FALSE(arrived(kAnna, 0, {0, 1})) << "only servers may report arrived pushes";
  EXPECT_FALSE(arrived(50, 10, {0, 1})) << "a step beyond the end";
  EXPECT_FALSE(arrived(50, -1, {0, 1}));
}

TEST_F(BackupJob, ContinuesWithoutAsManyWorkersAsItDrops) {
  train_three("");
  leave(kCarl, 1, "killed");
  tick();
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_TRAINING);
  EXPECT_THAT(notices(), HasSubstr("the others go on"));
  // another worker evaluates the chunks of the share; its micro-batches are not computed
  EXPECT_EQ(shares_of(kAnna), (std::vector<Range>{{0, 1}, {0, 0}}));
  EXPECT_EQ(state_of(kAnna).assigned(1).index(), 2);
  EXPECT_EQ(shares_of(kBert), (std::vector<Range>{{1, 2}}));
  live(70'000, {kAnna, kBert});
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_TRAINING) << "replacement-timeout does not count";
}

TEST_F(BackupJob, ReassignsAShareOnceAStepLacksPushes) {
  train_three("");
  leave(kCarl, 1, "killed");
  leave(kAnna, 1, "killed");
  tick();
  EXPECT_EQ(shares_of(kBert), (std::vector<Range>{{0, 1}, {1, 2}, {0, 0}}));
  EXPECT_THAT(notices(), HasSubstr("micro-batches 0 to 0 go to worker 1"));
}

TEST_F(BackupJob, NewcomerTakesTheUncomputedShare) {
  train_three("");
  evaluate(2);
  leave(kCarl, 1, "killed");
  tick();
  join(104);
  tick();
  ASSERT_EQ(shares_of(104), (std::vector<Range>{{2, 4}}));
  EXPECT_EQ(state_of(104).assigned(0).from_step(), 2) << "evaluated up to step 2";
  EXPECT_EQ(shares_of(kAnna), (std::vector<Range>{{0, 1}}));
}

TEST_F(BackupJob, WaitKeepsThePlaceFree) {
  train_three("on-worker-loss = wait\n");
  leave(kCarl, 1, "killed");
  tick();
  EXPECT_EQ(shares_of(kAnna), (std::vector<Range>{{0, 1}}));
  live(70'000, {kAnna, kBert});
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_FAILED);
}

TEST_F(BackupJob, StateTellsServersTheEvaluatedBarrier) {
  train_three("");
  EXPECT_EQ(state_of(kSelf).evaluated_barrier(), 0);
  const int64_t version = state_of(kSelf).version();
  evaluate(2);
  tick();
  EXPECT_EQ(state_of(kSelf).evaluated_barrier(), 2);
  EXPECT_GT(state_of(kSelf).version(), version) << "servers accept only newer states";
}

TEST_F(BackupJob, EndNoticeCountsDroppedPushes) {
  train_three("");
  for (int64_t step = 0; step < 10; ++step) {
    commit(kAnna, step, {0, 1});
    commit(kBert, step, {1, 2});
    Commit late{kCarl, step, {2, 4}, {}, false};
    late.dropped = true;
    if (step % 3 == 0) run_->on_commit(late);
  }
  evaluate(10);
  run_->on_barrier_open(10);
  EXPECT_EQ(write_snapshots(), 10);
  tick();
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_FINISHING);
  EXPECT_THAT(notices(), HasSubstr("dropped 4 pushes of worker 2"));
}

}  // namespace
}  // namespace pushpull

// Members that leave or are lost.
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
  EXPECT_FALSE(coordinator_->over());
  leave(kAnna, 5);
  tick();
  EXPECT_TRUE(coordinator_->over());
}

TEST_F(CoordinatorTest, AClosedConnectionIsNoticedSoonerThanSilence) {
  train("strategy = sync\non-worker-loss = abort\nheartbeat-timeout = 10\n");
  coordinator_->on_gone(now_, peer_of(kBert));
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
  EXPECT_EQ(shares_of(kAnna), (std::vector<Range>{{0, 2}})) << "nobody takes two";
  EXPECT_EQ(state_of(kSelf).workers_size(), 1) << "servers take nothing more of the lost one";
  join(kCarl);
  tick();
  EXPECT_EQ(state_of(kCarl).rank(), 1);
  ASSERT_EQ(shares_of(kCarl), (std::vector<Range>{{2, 4}}));
  EXPECT_EQ(state_of(kCarl).assigned(0).from_step(), 3)
      << "its last push may not have reached every server";
}

TEST_F(CoordinatorTest, WaitTakesASpareAtOnce) {
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

TEST_F(CoordinatorTest, AsyncDrawsTheLeasesOfALostWorkerAgain) {
  train("strategy = async\non-worker-loss = continue\n");
  const auto of_bert = coordinator_->leases(kBert);
  ASSERT_EQ(of_bert.size(), 2U);
  leave(kBert, 1, "killed");
  tick();
  EXPECT_TRUE(coordinator_->leases(kBert).empty());
  EXPECT_EQ(coordinator_->leases(kAnna)[0].step(), of_bert[0].step());
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
}

TEST_F(CoordinatorTest, ALostSpareCostsNothing) {
  train("strategy = sync\non-worker-loss = abort\n");
  join(kCarl);
  leave(kCarl, 1, "killed");
  tick();
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_TRAINING);
}

TEST_F(CoordinatorTest, ALostServerEndsTheJobAndPointsAtTheCheckpoint) {
  make("strategy = async\non-worker-loss = continue\n", 2);
  hello(50, wire::ROLE_SERVER);
  join(kAnna);
  join(kBert);
  coordinator_->start(now_, {});
  live(11000, {kAnna, kBert});
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_FAILED);
  EXPECT_THAT(coordinator_->failure_text(), HasSubstr("server 1 (node, pid 1050)"));
  EXPECT_THAT(coordinator_->failure_text(), HasSubstr("last checkpoint"));
}

TEST_F(CoordinatorTest, AWorkerThatIsLostBeforeTheStartIsReplacedByTheNext) {
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

TEST_F(CoordinatorTest, AGradientThatIsNotFiniteEndsTheJobUnderAnyPolicy) {
  train("strategy = async\non-worker-loss = continue\n");
  leave(kBert, static_cast<int>(ErrorCode::kNotFinite), "[train] the loss is nan");
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_FAILED);
  EXPECT_EQ(coordinator_->failure_code(), ErrorCode::kNotFinite);
  EXPECT_THAT(coordinator_->failure_text(), HasSubstr("[train] the loss is nan (worker 1"));
}

TEST_F(CoordinatorTest, NoLastWordsMakeABrokenRunASuccess) {
  for (const int code : {256, -1, 512, 1 << 30}) {
    make("strategy = sync\n");
    join(kAnna);
    EXPECT_TRUE(leave(kAnna, code, "[worker] strange"));
    EXPECT_EQ(coordinator_->phase(), wire::PHASE_FAILED);
    EXPECT_EQ(coordinator_->failure_code(), ErrorCode::kPeerLost) << code;
  }
}

TEST_F(CoordinatorTest, OneThatComesBackAfterItWasGivenUpIsRefused) {
  train("strategy = sync\non-worker-loss = wait\n");
  live(11000, {kAnna});
  EXPECT_TRUE(heartbeat(kBert));
  EXPECT_THAT(refusal_of(kBert), HasSubstr("given up"));
}

}  // namespace
}  // namespace pushpull

// Tests of jobs that are told to end, at their coordinator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/ps/job_driver_fixture.h"

namespace pushpull {
namespace {

TEST_F(JobDriverTest, BeforeTheFirstStepASignalEndsTheJobAndASecondCtrlCTheProcess) {
  make();
  EXPECT_FALSE(driver_->on_signal(now(), 15));
  EXPECT_FALSE(driver_->serves());
  now_ += 1000;
  EXPECT_FALSE(driver_->on_signal(now(), 15)) << "schedulers repeat the signal";
  EXPECT_FALSE(driver_->on_signal(now(), 2));
  now_ += 300;
  EXPECT_TRUE(driver_->on_signal(now(), 2));
  EXPECT_EQ(driver_->exit_code(), 143);
}

TEST_F(JobDriverTest, ACoordinatorThatWasKilledBeforeTheFirstStepIsAFreshOne) {
  make("replacement-timeout = 3\n", 600.0, 1, 2);
  EXPECT_FALSE(driver_->on_signal(now(), 15));
  EXPECT_FALSE(driver_->serves()) << "there is nothing to save";
  EXPECT_EQ(driver_->exit_code(), 143);
  make("replacement-timeout = 3\n", 600.0, 1, 2);
  turn();
  turn(4000);
  EXPECT_TRUE(driver_->serves()) << "--join-timeout counts";
  join();
  EXPECT_THAT(lines_, HasSubstr("training starts"));
  EXPECT_EQ(history_.first_step, 0);
}

TEST_F(JobDriverTest, SignalStopsTheJobAtTheNextCutWithACheckpoint) {
  make("steps = 10\n");
  join();
  exchange_with_shards();
  driver_->on_written(now(), {0, "first", nullptr});
  EXPECT_FALSE(driver_->on_signal(now(), 15));
  EXPECT_THAT(
      lines_,
      HasSubstr("SIGTERM (server 0 (head, pid 1)): the run stops with a checkpoint at step 2"));
  turn();
  const ServerSetup setup = server_setup(job_of("steps = 10\nslice-bytes = 4096\n"), 3000, 0, 1, 1);
  for (int64_t step = 0; step < 2; ++step) {
    EXPECT_EQ(written_, std::vector<int64_t>{});
    data_.take("anna", push_message(setup, kAnna, step + 1, step, {0, 4}, 1.0F));
    data_.work();
    driver_->on_data_taken(now());
    turn();
    exchange_with_shards();
  }
  EXPECT_EQ(written_, std::vector<int64_t>{2});
  driver_->on_written(now(), {2, "last", nullptr});
  turn();
  turn(6000);  // the worker reports nothing more
  turn();
  ASSERT_EQ(summaries_.size(), 1U);
  EXPECT_EQ(summaries_[0].end_step, 2);
  EXPECT_EQ(summaries_[0].counts.samples, setup.job.global_batch * 2);
  EXPECT_EQ(summaries_[0].weights_sha256, "last");
  EXPECT_EQ(summaries_[0].stopped_by, "SIGTERM (server 0 (head, pid 1))");
  EXPECT_EQ(driver_->exit_code(), 75);
  ASSERT_EQ(ends_.size(), 1U);
  EXPECT_FALSE(ends_[0].finished);
  EXPECT_EQ(ends_[0].code, 75);
  EXPECT_EQ(ends_[0].exit_code, 75);
  EXPECT_EQ(driver_->coordinator().failure_code(), ErrorCode::kStopped)
      << "members end with this code";
}

TEST_F(JobDriverTest, JobThatMissesItsCutWithinTheGraceFails) {
  make("steps = 10\nheartbeat-timeout = 3600\n");
  join();
  exchange_with_shards();
  driver_->on_written(now(), {0, "first", nullptr});
  EXPECT_FALSE(driver_->on_signal(now(), 15));
  turn(cut_ms(25'000) - 10);
  EXPECT_TRUE(driver_->serves());
  EXPECT_FALSE(driver_->gave_up_stop());
  turn(10);
  EXPECT_FALSE(driver_->serves());
  EXPECT_TRUE(driver_->gave_up_stop());
  EXPECT_THAT(driver_->coordinator().failure_text(), HasSubstr("within the grace of 25 s; there is "
                                                               "no checkpoint of this run on disk: "
                                                               "all its 0 steps are lost"));
  EXPECT_EQ(driver_->exit_code(), 143);
}

TEST_F(JobDriverTest, JobThatMissesItsCutLeavesWithItsNewestCheckpointAndSaysWhatIsLost) {
  stops_.grace_ms = 5000;
  train_one_worker("steps = 20\ncheckpoint-every = 2\nheartbeat-timeout = 3600\n");
  for (int64_t step = 0; step < 3; ++step) finish_step(step, nullptr);
  ASSERT_EQ(written_, std::vector<int64_t>{2});
  EXPECT_FALSE(driver_->on_signal(now(), 15));
  turn(4000 - 10);
  EXPECT_TRUE(driver_->serves());
  turn(10);
  EXPECT_FALSE(driver_->serves());
  EXPECT_THAT(
      driver_->coordinator().failure_text(),
      HasSubstr("ended by SIGTERM (server 0 (head, pid 1)); the next consistent cut was not "
                "on disk within the grace of 5 s; the newest checkpoint is that of step 2: 1 "
                "step since then is lost; the same command with --resume auto goes on"));
  EXPECT_EQ(driver_->exit_code(), 75);
  EXPECT_EQ(driver_->coordinator().failure_code(), ErrorCode::kStopped) << "members end with it";
  turn();
  ASSERT_FALSE(ends_.empty());
  EXPECT_EQ(ends_.back().exit_code, 75);
}

// The disk hangs while the checkpoint of the stop is written.
TEST_F(JobDriverTest, TheProcessMayEndWithinTheGraceIfTheDiskHangs) {
  stops_.grace_ms = 5000;
  train_one_worker("steps = 20\nheartbeat-timeout = 3600\n");
  EXPECT_FALSE(driver_->on_signal(now(), 15));
  for (int64_t step = 0; step < 2; ++step) push_step(step);
  ASSERT_EQ(written_, std::vector<int64_t>{2});
  turn(4000);
  EXPECT_FALSE(driver_->serves());
  EXPECT_FALSE(driver_->transfer_overdue(now()));
  turn(500);
  EXPECT_TRUE(driver_->transfer_overdue(now()));
  EXPECT_EQ(driver_->exit_code(), 143);
}

class FullDiskAtTheStop : public JobDriverTest, public testing::WithParamInterface<const char*> {};

// on-checkpoint-failure = continue must not report a checkpoint that is not on disk.
TEST_P(FullDiskAtTheStop, EndsTheJobAndSaysWhatIsLost) {
  train_one_worker("steps = 20\ncheckpoint-every = 2\non-checkpoint-failure = " +
                   std::string(GetParam()) + "\n");
  for (int64_t step = 0; step < 3; ++step) finish_step(step, nullptr);
  EXPECT_FALSE(driver_->on_signal(now(), 15));
  finish_step(3, nullptr);
  push_step(4);
  ASSERT_EQ(written_, (std::vector<int64_t>{2, 4, 5}));
  const auto full = std::make_exception_ptr(Error(ErrorCode::kIo, "[checkpoint] the disk is full"));
  try {
    driver_->on_written(now(), {5, "", full, CheckpointKind::kLast});
    ADD_FAILURE() << "training goes on";
  } catch (const Error& e) {
    driver_->fail(e.code(), e.what());
  }
  turn();
  EXPECT_EQ(driver_->exit_code(), 8);
  EXPECT_THAT(
      driver_->coordinator().failure_text(),
      HasSubstr("[checkpoint] the disk is full; the run was to stop with this checkpoint: the "
                "newest checkpoint is that of step 4: 1 step since then is lost"));
  EXPECT_TRUE(summaries_.empty()) << "it would say that the run has stopped";
}

INSTANTIATE_TEST_SUITE_P(OnCheckpointFailure, FullDiskAtTheStop,
                         testing::Values("abort", "continue"));

TEST_F(JobDriverTest, TheEndOfTheAllocationStopsTheJobByItself) {
  stops_.stop_at_utc_ms = now_ + 60'000;
  stops_.stop_before_ms = 120'000;
  stops_.stop_reason = "the allocation ends at noon";
  train_one_worker("steps = 10\nheartbeat-timeout = 3600\n");
  turn(50'000);
  EXPECT_EQ(driver_->coordinator().barriers().stop_step, 0);
  turn(10'000);
  EXPECT_THAT(lines_, HasSubstr("[job] time-limit: the allocation ends at noon\n[job] time-limit: "
                                "the run stops with a checkpoint at step 2"));
  EXPECT_FALSE(driver_->on_signal(now(), 15)) << "the scheduler's, later";
  turn(117'000);
  EXPECT_TRUE(driver_->serves()) << "the grace lasts until the allocation ends";
  for (int64_t step = 0; step < 2; ++step) finish_step(step, nullptr);
  turn(6000);
  turn();
  ASSERT_EQ(summaries_.size(), 1U);
  EXPECT_EQ(summaries_[0].stopped_by, "time-limit");
  EXPECT_EQ(driver_->exit_code(), 75);
}

TEST_F(JobDriverTest, TheEndOfTheAllocationBeforeTheFirstStepIsAFailure) {
  stops_.stop_at_utc_ms = now_ + 60'000;
  make();
  turn(60'000);
  EXPECT_FALSE(driver_->serves());
  EXPECT_EQ(driver_->coordinator().failure_text(), "[job] ended by time-limit");
  EXPECT_EQ(driver_->exit_code(), 1);
}

// ---- checkpoints by a signal ----

TEST_F(JobDriverTest, ACheckpointSignalWritesACheckpointAndTrainingGoesOn) {
  train_one_worker("steps = 20\n");
  EXPECT_FALSE(driver_->on_signal(now(), SIGUSR1));
  EXPECT_THAT(lines_, HasSubstr("[job] SIGUSR1: a checkpoint at step 2, training goes on"));
  EXPECT_FALSE(driver_->on_signal(now(), SIGUSR1));
  EXPECT_THAT(lines_, HasSubstr("[job] SIGUSR1: the checkpoint at step 2 covers it"));
  turn();
  for (int64_t step = 0; step < 8; ++step) finish_step(step, nullptr);
  EXPECT_EQ(written_, std::vector<int64_t>{2});
  EXPECT_THAT(lines_, HasSubstr("[job] the checkpoint of step 2 is on disk"));
  EXPECT_TRUE(driver_->serves());
  EXPECT_EQ(driver_->coordinator().barriers().stop_step, 0);
  for (int64_t step = 8; step < 20; ++step) finish_step(step, nullptr);
  EXPECT_EQ(written_.back(), 20);
}

// Steps may take less time than the next tick is away. The other servers hear of the checkpoint with
// the next State: until this server answers, no worker has weights to go on with.
TEST_F(JobDriverTest, TheServerHereKnowsAChosenCheckpointBeforeItHandlesOtherMessages) {
  train_one_worker("steps = 20\n");
  EXPECT_FALSE(driver_->on_signal(now(), SIGUSR1));
  ASSERT_THAT(lines_, HasSubstr("[job] SIGUSR1: a checkpoint at step 2, training goes on"));
  const ServerSetup setup = server_setup(job_of(keys_ + "slice-bytes = 4096\n"), 3000, 0, 1, 1);
  for (int64_t step = 0; step < 3; ++step) {
    data_.take("anna", push_message(setup, kAnna, step + 1, step, {0, 4}, 1.0F));
    data_.work();
  }
  EXPECT_EQ(data_.server()->open_barrier(), 2);
  EXPECT_EQ(data_.server()->floor(), 2) << "the weights of the step after it are held back";
}

TEST_F(JobDriverTest, ACheckpointSignalDuringACheckpointAddsOneAfterIt) {
  train_one_worker("steps = 20\n");
  driver_->on_signal(now(), SIGUSR1);
  for (int64_t step = 0; step < 3; ++step) push_step(step);
  ASSERT_EQ(written_, std::vector<int64_t>{2});
  for (int i = 0; i < 5; ++i) driver_->on_signal(now(), SIGUSR1);
  turn();
  EXPECT_THAT(lines_, HasSubstr("SIGUSR1: a checkpoint follows that in progress"));
  EXPECT_EQ(lines_.find("follows that"), lines_.rfind("follows that")) << "one line";
  driver_->on_written(now(), {2, "", nullptr});
  turn();
  EXPECT_THAT(lines_, HasSubstr("SIGUSR1: a checkpoint at step 6, training goes on"));
  for (int64_t step = 3; step < 6; ++step) push_step(step);
  EXPECT_EQ(written_, (std::vector<int64_t>{2, 6}));
}

TEST_F(JobDriverTest, ACheckpointSignalBeforeTheFirstStepAddsNothing) {
  make("steps = 10\n");
  EXPECT_FALSE(driver_->on_signal(now(), SIGUSR1));
  EXPECT_THAT(lines_, HasSubstr("SIGUSR1: training has not begun, so there is nothing to write"));
  EXPECT_TRUE(driver_->serves());
}

TEST_F(JobDriverTest, ACheckpointSignalAtAStopAddsNothing) {
  train_one_worker("steps = 10\n");
  EXPECT_FALSE(driver_->on_signal(now(), 15));
  EXPECT_FALSE(driver_->on_signal(now(), SIGUSR1));
  EXPECT_THAT(lines_, HasSubstr("SIGUSR1: the run stops, with a checkpoint"));
  EXPECT_TRUE(driver_->coordinator().barriers().chosen.empty());
}

TEST_F(JobDriverTest, ACheckpointSignalNearTheEndAddsNothing) {
  train_one_worker("steps = 2\n");
  EXPECT_FALSE(driver_->on_signal(now(), SIGUSR1));
  EXPECT_THAT(lines_, HasSubstr("SIGUSR1: the run ends within a few steps, with a checkpoint"));
}

TEST_F(JobDriverTest, AnotherSignalIsIgnoredWithOneLine) {
  stops_.checkpoint_signal = 0;
  train_one_worker("steps = 10\n");
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(driver_->on_signal(now(), SIGUSR1));
  EXPECT_FALSE(driver_->on_signal(now(), SIGUSR2));
  EXPECT_THAT(lines_, HasSubstr("ignored SIGUSR1: checkpoint-signal is none\nignored SIGUSR2"));
  EXPECT_TRUE(driver_->coordinator().barriers().chosen.empty());
}

// Workers that keep the weights pause at checkpoints only.
TEST_F(JobDriverTest, AllReduceStopsAtACheckpointThatIsAddedForIt) {
  train_one_worker("steps = 1000\nstrategy = allreduce:tree\nheartbeat-timeout = 3600\n");
  sent_.clear();
  EXPECT_FALSE(driver_->on_signal(now(), 15));
  EXPECT_THAT(lines_, HasSubstr("the run stops with a checkpoint at step 30"));
  turn();
  const auto headers = messages_to("anna");
  ASSERT_FALSE(headers.empty());
  ASSERT_EQ(headers.back().state().chosen_checkpoints_size(), 1);
  EXPECT_EQ(headers.back().state().chosen_checkpoints(0), 30);
}

TEST_F(JobDriverTest, AllReduceStopsAtARegularCheckpointThatIsAsNear) {
  train_one_worker("steps = 1000\nstrategy = allreduce:tree\ncheckpoint-every = 20\n");
  EXPECT_FALSE(driver_->on_signal(now(), 15));
  EXPECT_THAT(lines_, HasSubstr("the run stops with a checkpoint at step 20"));
}

TEST_F(JobDriverTest, AllReduceStopsAtACheckpointThatASignalHasAdded) {
  train_one_worker("steps = 1000\nstrategy = allreduce:tree\n");
  EXPECT_FALSE(driver_->on_signal(now(), SIGUSR1));
  EXPECT_THAT(lines_, HasSubstr("a checkpoint at step 30, training goes on"));
  EXPECT_FALSE(driver_->on_signal(now(), 15));
  EXPECT_THAT(lines_, HasSubstr("the run stops with a checkpoint at step 30"));
}

TEST_F(JobDriverTest, AllReduceNearItsEndHasNoCutAndEndsWithTheGrace) {
  make("steps = 10\nstrategy = allreduce:tree\nheartbeat-timeout = 3600\n");
  join();
  exchange_with_shards();
  driver_->on_written(now(), {0, "first", nullptr});
  EXPECT_FALSE(driver_->on_signal(now(), 15));
  EXPECT_THAT(lines_, HasSubstr("has no consistent cut before its end"));
  turn(cut_ms(25'000) - 10);
  EXPECT_TRUE(driver_->serves());
  turn(10);
  EXPECT_FALSE(driver_->serves());
  EXPECT_EQ(driver_->exit_code(), 143);
  EXPECT_EQ(driver_->coordinator().failure_code(), ErrorCode::kFailed) << "so members end with it";
}

TEST_F(JobDriverTest, WorkerThatIsToldToEndIsReleasedUnlessTheJobStops) {
  for (const bool stops : {false, true}) {
    make("steps = 10\nheartbeat-timeout = 3600\n");
    join(driver_->coordinator().term_id());
    sent_.clear();
    Message message;
    message.header.set_term_id(kTermId);
    message.header.mutable_heartbeat()->set_incarnation(kAnna);
    message.header.mutable_heartbeat()->set_told_to_end(15);
    EXPECT_FALSE(driver_->on_message(now(), "anna", message));
    const auto released = [this] {
      const auto headers = messages_to("anna");
      return std::any_of(headers.begin(), headers.end(),
                         [](const auto& header) { return header.state().let_go(); });
    };
    turn(900);
    EXPECT_FALSE(released());
    if (stops) {
      EXPECT_FALSE(driver_->on_signal(now(), 15));
    }
    turn(200);
    turn();
    EXPECT_EQ(released(), !stops);
    data_.end_term(kTermId);
  }
}

}  // namespace
}  // namespace pushpull

// Tests of jobs that are told to end, at their coordinator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_EQ(summaries_[0].steps, 2);
  EXPECT_EQ(summaries_[0].samples, setup.job.global_batch * 2);
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
  turn(EndRequest::kStopMs - 10);
  EXPECT_TRUE(driver_->serves());
  turn(10);
  EXPECT_FALSE(driver_->serves());
  EXPECT_THAT(driver_->coordinator().failure_text(), HasSubstr("within the grace of 23 s"));
  EXPECT_EQ(driver_->exit_code(), 143);
}

TEST_F(JobDriverTest, AllReduceWithoutACheckpointDueHasNoCutAndEndsWithTheGrace) {
  make("steps = 10\nstrategy = allreduce:tree\nheartbeat-timeout = 3600\n");
  join();
  exchange_with_shards();
  driver_->on_written(now(), {0, "first", nullptr});
  EXPECT_FALSE(driver_->on_signal(now(), 15));
  EXPECT_THAT(lines_, HasSubstr("has no consistent cut before its end"));
  turn(EndRequest::kStopMs - 10);
  EXPECT_TRUE(driver_->serves());
  turn(10);
  EXPECT_FALSE(driver_->serves());
  EXPECT_EQ(driver_->exit_code(), 143);
  EXPECT_EQ(driver_->coordinator().failure_code(), ErrorCode::kFailed) << "so members end with it";
}

TEST_F(JobDriverTest, WorkerThatIsToldToEndIsReleasedUnlessTheJobStops) {
  for (const bool stops : {false, true}) {
    make("steps = 10\nheartbeat-timeout = 3600\n");
    join(driver_->coordinator().run());
    sent_.clear();
    Message message;
    message.header.set_run(kRun);
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
    data_.end_term(kRun);
  }
}

}  // namespace
}  // namespace pushpull

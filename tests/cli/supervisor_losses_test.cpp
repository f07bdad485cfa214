// Servers that are lost under `pushpull run` while the job waits for others, and a signal to all
// processes of a job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "cli/run/supervisor.h"
#include "tests/cli/supervisor_endings.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void end_all(Supervisor& supervisor, std::initializer_list<size_t> slots, const Ending& ending) {
  for (const size_t slot : slots) supervisor.ended(slot, ending, 5000);
}

// Two servers in slots 0 and 1, three workers in 2 to 4, pids 100 to 104. The coordinator listens,
// and the job waits for lost servers.
Supervisor make_gathering(OnWorkerLoss policy = OnWorkerLoss::kAbort) {
  Supervisor supervisor({.servers = 2,
                         .workers = 3,
                         .on_worker_loss = policy,
                         .on_server_loss = OnServerLoss::kRestart});
  for (size_t slot = 0; slot < 5; ++slot)
    supervisor.started(slot, 100 + static_cast<int64_t>(slot));
  supervisor.listens();
  return supervisor;
}

// All members have joined.
Supervisor make_training(OnWorkerLoss policy = OnWorkerLoss::kAbort) {
  Supervisor supervisor = make_gathering(policy);
  supervisor.training_began();
  return supervisor;
}

TEST(SupervisorLosses, AJoinedServerThatIsAskedToEndIsReplacedAMomentLater) {
  for (const Ending& ending : {code(128 + SIGTERM), code(128 + SIGINT), code(128 + SIGHUP),
                               Ending{.code = 0, .signal = SIGTERM}}) {
    Supervisor supervisor = make_training();
    SupervisorActions actions = supervisor.ended(1, ending, 5000);
    EXPECT_FALSE(actions.restart);
    EXPECT_FALSE(actions.hold);
    EXPECT_THAT(actions.say, IsEmpty());
    ASSERT_EQ(supervisor.deadline_ms(), 6000);
    EXPECT_FALSE(supervisor.tick(5999).restart);
    actions = supervisor.tick(6000);
    EXPECT_EQ(actions.restart, 1U) << ending.describe();
    EXPECT_THAT(actions.say, ElementsAre(HasSubstr("starting a replacement, 1 of at most 3")));
    supervisor.started(1, 201);
    EXPECT_EQ(supervisor.deadline_ms(), std::nullopt);
    end_all(supervisor, {0, 1, 2, 3, 4}, kDone);
    EXPECT_EQ(supervisor.exit_code(), 0);
  }
}

TEST(SupervisorLosses, ASignalToAllProcessesReplacesNone) {
  for (const bool launcher_first : {false, true}) {
    Supervisor supervisor = make_gathering();
    if (launcher_first) supervisor.signalled(SIGTERM, 0);
    EXPECT_FALSE(supervisor.ended(1, code(143), 1).restart) << "it had not joined yet";
    if (!launcher_first) {
      EXPECT_EQ(supervisor.signalled(SIGTERM, 2).signal_coordinator, SIGTERM);
    }
    supervisor.signalled(SIGTERM, 3);  // schedulers repeat it
    end_all(supervisor, {2, 3, 4}, code(143));
    supervisor.ended(0, code(143), 20);
    EXPECT_FALSE(supervisor.tick(5000).restart);
    EXPECT_TRUE(supervisor.all_ended());
    EXPECT_EQ(supervisor.exit_code(), 143);
  }
}

TEST(SupervisorLosses, AStopThatNeedsTheServerStillReplacesIt) {
  Supervisor supervisor = make_training();
  supervisor.ended(1, code(143), 0);
  supervisor.signalled(SIGTERM, 500);
  EXPECT_EQ(supervisor.tick(1000).restart, 1U) << "the cut needs it";
  supervisor.started(1, 201);
  end_all(supervisor, {0, 1, 2, 3, 4}, code(75));
  EXPECT_EQ(supervisor.exit_code(), 75);
}

TEST(SupervisorLosses, AServerThatTheCoordinatorHasGivenUpIsReplacedHoweverItEnds) {
  for (const Ending& ending : {code(5), code(4), code(1), code(143)}) {
    for (const bool report_first : {true, false}) {
      Supervisor supervisor = make_training();
      SupervisorActions actions;
      if (report_first) {
        EXPECT_FALSE(supervisor.given_up(101, 0).restart);
        actions = supervisor.ended(1, ending, 10);
      } else {
        EXPECT_FALSE(supervisor.ended(1, ending, 10).hold) << "the coordinator decides";
        actions = supervisor.given_up(101, 20);
      }
      EXPECT_EQ(actions.restart, 1U) << ending.describe();
      supervisor.started(1, 201);
      EXPECT_EQ(supervisor.deadline_ms(), std::nullopt);
    }
  }
}

TEST(SupervisorLosses, AServerThatIsGivenUpAndDoesNotEndIsKilledAndReplaced) {
  Supervisor supervisor = make_training();
  supervisor.given_up(101, 0);
  ASSERT_EQ(supervisor.deadline_ms(), 1000);
  EXPECT_FALSE(supervisor.tick(999).kill);
  const SupervisorActions actions = supervisor.tick(1000);
  EXPECT_EQ(actions.kill, 1U);
  EXPECT_THAT(actions.say, ElementsAre(HasSubstr("server 1 (pid 101) is given up")));
  EXPECT_FALSE(supervisor.tick(1001).kill) << "once";
  EXPECT_EQ(supervisor.ended(1, kShot, 1002).restart, 1U);
  supervisor.started(1, 201);
  EXPECT_FALSE(supervisor.given_up(101, 1003).restart) << "that process has ended";
  EXPECT_EQ(supervisor.deadline_ms(), std::nullopt);
}

TEST(SupervisorLosses, AServerThatCannotBeReplacedAgainIsNotKilled) {
  Supervisor supervisor = make_training();
  for (int64_t i = 1; i <= 3; ++i) {
    EXPECT_TRUE(supervisor.ended(1, kShot, 0).restart);
    supervisor.started(1, 200 + i);
  }
  supervisor.given_up(203, 0);
  EXPECT_EQ(supervisor.deadline_ms(), std::nullopt) << "it may come back by itself";
}

TEST(SupervisorLosses, AWorkerThatIsGivenUpIsKilledOnlyWhereTheJobWaitsForAnother) {
  for (const OnWorkerLoss policy :
       {OnWorkerLoss::kAbort, OnWorkerLoss::kContinue, OnWorkerLoss::kWait}) {
    Supervisor supervisor = make_training(policy);
    supervisor.given_up(103, 0);
    EXPECT_EQ(supervisor.tick(1000).kill.has_value(), policy == OnWorkerLoss::kWait);
  }
}

TEST(SupervisorLosses, AWorkerThatIsGivenUpIsKilledInTimeAlsoIfTheJobFinishesFirst) {
  Supervisor supervisor = make_training(OnWorkerLoss::kWait);
  supervisor.given_up(102, 5000);
  supervisor.ended(0, kDone, 5100);
  ASSERT_EQ(supervisor.deadline_ms(), 6000);
  EXPECT_FALSE(supervisor.tick(5999).kill);
  EXPECT_EQ(supervisor.tick(6000).kill, 2U);
  EXPECT_THAT(supervisor.ended(2, kShot, 6001).say,
              ElementsAre(HasSubstr("after the job was done")));
  end_all(supervisor, {1, 3, 4}, kDone);
  EXPECT_TRUE(supervisor.all_ended());
  EXPECT_EQ(supervisor.exit_code(), 0);
}

TEST(SupervisorLosses, AWorkerThatIsGivenUpIsKilledOnceTheCauseOfAFailureIsKnown) {
  Supervisor supervisor = make_training(OnWorkerLoss::kWait);
  supervisor.given_up(102, 5000);
  EXPECT_TRUE(supervisor.ended(0, code(5), 5100).hold);
  ASSERT_EQ(supervisor.deadline_ms(), 6100);
  EXPECT_FALSE(supervisor.tick(6000).kill) << "its signal would look like the cause";
  EXPECT_EQ(supervisor.tick(6100).release, 0U);
  ASSERT_EQ(supervisor.deadline_ms(), 6000);
  EXPECT_EQ(supervisor.tick(6101).kill, 2U);
  end_all(supervisor, {1, 2, 3, 4}, kShot);
  EXPECT_EQ(supervisor.exit_code(), 5);
}

TEST(SupervisorLosses, AServerThatEndsWithTheFailedJobIsNotReplaced) {
  Supervisor supervisor = make_training();
  EXPECT_FALSE(supervisor.ended(1, code(5), 0).hold);
  EXPECT_TRUE(supervisor.ended(2, code(5), 10).hold);
  end_all(supervisor, {3, 4, 0}, code(5));
  EXPECT_TRUE(supervisor.all_ended());
  EXPECT_EQ(supervisor.exit_code(), 5);
}

TEST(SupervisorLosses, AServerThatEndsByItselfUnreportedFailsTheJob) {
  Supervisor supervisor = make_training();
  EXPECT_FALSE(supervisor.ended(1, code(8), 0).hold);
  ASSERT_EQ(supervisor.deadline_ms(), 10000);
  EXPECT_TRUE(supervisor.tick(10000).hold);
  EXPECT_THAT(supervisor.tick(11000).say, ElementsAre(HasSubstr("exit code 8 (file)")));
  end_all(supervisor, {0, 2, 3, 4}, code(143));
  EXPECT_EQ(supervisor.exit_code(), 8);
}

TEST(SupervisorLosses, AnErrorThatTheNextServerWouldRepeatEndsTheJob) {
  for (const int value : {2, 3, 6, 7, 9, 77, 127}) {
    Supervisor supervisor = make_training();
    EXPECT_TRUE(supervisor.ended(1, code(value), 0).hold) << value;
    supervisor.tick(1000);
    EXPECT_EQ(supervisor.exit_code(), value);
  }
}

TEST(SupervisorLosses, AReplacementThatComesTooLateIsAskedToEndWithTheJob) {
  Supervisor supervisor = make_training(OnWorkerLoss::kWait);
  ASSERT_EQ(supervisor.ended(2, kShot, 5000).restart, 2U);
  supervisor.started(2, 202);
  EXPECT_THAT(supervisor.ended(0, kDone, 5100).end, ElementsAre(2U));
  const SupervisorActions actions = supervisor.ended(2, code(128 + SIGTERM), 5200);
  EXPECT_THAT(actions.say, ElementsAre(HasSubstr("after the job was done")));
  EXPECT_FALSE(actions.restart);
  end_all(supervisor, {1, 3, 4}, kDone);
  EXPECT_TRUE(supervisor.all_ended());
  EXPECT_EQ(supervisor.exit_code(), 0);
}

TEST(SupervisorLosses, AWorkerThatHasLeftIsReplacedOnceTheCoordinatorReportsIt) {
  for (const bool told_first : {true, false}) {
    Supervisor supervisor = make_training(OnWorkerLoss::kWait);
    SupervisorActions actions;
    if (told_first) {
      EXPECT_FALSE(supervisor.given_up(103, 5000).restart);
    }
    actions = supervisor.ended(3, kDone, 5100);
    if (!told_first) {
      EXPECT_FALSE(actions.restart) << "the job may be done";
      actions = supervisor.given_up(103, 5200);
    }
    EXPECT_EQ(actions.restart, 3U);
    EXPECT_THAT(actions.say, ElementsAre("[run] worker 1 (pid 103) ended with exit code 0; "
                                         "starting a replacement, 1 of at most 3"));
    supervisor.started(3, 203);
    end_all(supervisor, {0, 1, 2, 3, 4}, kDone);
    EXPECT_TRUE(supervisor.all_ended());
    EXPECT_EQ(supervisor.exit_code(), 0);
  }
}

TEST(SupervisorLosses, AWorkerThatEndsTooEarlyIsNotReplaced) {
  Supervisor supervisor = make_gathering(OnWorkerLoss::kWait);
  EXPECT_TRUE(supervisor.ended(3, {.code = 0, .signal = 0, .too_early = true}, 5000).hold);
  EXPECT_THAT(supervisor.tick(6000).say, ElementsAre(HasSubstr("before training began")));
  end_all(supervisor, {0, 1, 2, 4}, code(143));
  EXPECT_EQ(supervisor.exit_code(), 1);
}

// The coordinator in slot 0, srun in slot 1.
Supervisor supervisor_of_step(OnWorkerLoss policy) {
  Supervisor supervisor({.step = "srun", .on_worker_loss = policy});
  supervisor.started(0, 100);
  supervisor.started(1, 101);
  supervisor.listens();
  supervisor.training_began();
  return supervisor;
}

TEST(SupervisorOfAStep, ALostStepFailsTheJobUnderEveryPolicy) {
  for (const auto policy : {OnWorkerLoss::kAbort, OnWorkerLoss::kWait, OnWorkerLoss::kContinue}) {
    Supervisor supervisor = supervisor_of_step(policy);
    SupervisorActions actions = supervisor.ended(1, {.code = 0, .signal = SIGKILL}, 0);
    EXPECT_FALSE(actions.restart) << "no second step";
    actions = supervisor.tick(1000);
    ASSERT_EQ(actions.say.size(), 1U);
    EXPECT_THAT(actions.say[0], HasSubstr("[run] srun (pid 101) was killed by signal 9"));
    EXPECT_EQ(actions.signal_all, SIGTERM);
    supervisor.ended(0, {.code = static_cast<int>(ErrorCode::kStopped)}, 1100);
    EXPECT_EQ(supervisor.exit_code(), 137);
  }
}

TEST(SupervisorOfAStep, AStepThatEndsWellLeavesTheEndToTheCoordinator) {
  Supervisor supervisor = supervisor_of_step(OnWorkerLoss::kWait);
  EXPECT_THAT(supervisor.ended(1, {}, 0).say, ::testing::IsEmpty());
  supervisor.ended(0, {.code = static_cast<int>(ErrorCode::kStopped)}, 10);
  EXPECT_TRUE(supervisor.all_ended());
  EXPECT_EQ(supervisor.exit_code(), static_cast<int>(ErrorCode::kStopped));
}

}  // namespace
}  // namespace pushpull

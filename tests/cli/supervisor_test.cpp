#include "cli/run/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/cli/supervisor_endings.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two servers in slots 0 and 1, three workers in 2 to 4, pids 100 to 104.
class SupervisorTest : public ::testing::Test {
 protected:
  static Supervisor make(OnWorkerLoss policy, OnServerLoss servers = OnServerLoss::kAbort) {
    Supervisor supervisor(
        {.servers = 2, .workers = 3, .on_worker_loss = policy, .on_server_loss = servers});
    for (size_t slot = 0; slot < 5; ++slot) {
      supervisor.started(slot, 100 + static_cast<int64_t>(slot));
    }
    supervisor.training_began();
    return supervisor;
  }
  static void end_all(Supervisor& supervisor, std::initializer_list<size_t> slots,
                      const Ending& ending) {
    for (const size_t slot : slots) {
      supervisor.ended(slot, ending, 5000);
    }
  }
};

TEST_F(SupervisorTest, ASuccessfulJobReturnsZeroForAnyOrderOfEnds) {
  for (const size_t first : {0, 1, 4}) {
    Supervisor supervisor = make(OnWorkerLoss::kAbort);
    EXPECT_THAT(supervisor.ended(first, kDone, 0).say, IsEmpty());
    for (size_t slot = 0; slot < 5; ++slot) {
      if (slot != first) {
        EXPECT_FALSE(supervisor.all_ended());
        const SupervisorActions actions = supervisor.ended(slot, kDone, 1);
        EXPECT_THAT(actions.say, IsEmpty());
        EXPECT_EQ(actions.signal_all, 0);
      }
    }
    EXPECT_TRUE(supervisor.all_ended());
    EXPECT_EQ(supervisor.exit_code(), 0);
  }
}

TEST_F(SupervisorTest, TheFirstFailureIsNamedAndTheOthersAreStopped) {
  Supervisor supervisor = make(OnWorkerLoss::kAbort);
  SupervisorActions actions = supervisor.ended(3, code(3), 1000);
  EXPECT_TRUE(actions.hold);
  EXPECT_THAT(actions.say, IsEmpty());
  EXPECT_TRUE(supervisor.stopping());
  ASSERT_EQ(supervisor.deadline_ms(), 2000);
  EXPECT_THAT(supervisor.tick(1999).say, IsEmpty());
  actions = supervisor.tick(2000);
  EXPECT_THAT(actions.say, ElementsAre("[run] worker 1 (pid 103) ended with exit code 3 (data); "
                                       "stopping the others"));
  EXPECT_EQ(actions.release, 3U);
  EXPECT_EQ(actions.signal_all, SIGTERM);
  end_all(supervisor, {0, 1, 2, 4}, {.code = 128 + SIGTERM, .signal = 0});
  EXPECT_TRUE(supervisor.all_ended());
  EXPECT_EQ(supervisor.exit_code(), 3);
}

TEST_F(SupervisorTest, TheProcessNamedByTheCoordinatorIsTheCauseIfAllEndWithOneCode) {
  Supervisor supervisor = make(OnWorkerLoss::kAbort);
  supervisor.blamed(100, 9, "[device] cuda:0 is lost");
  end_all(supervisor, {2, 3, 4, 1}, code(9));  // the coordinator told them; it ends last
  const SupervisorActions actions = supervisor.ended(0, code(9), 5001);
  EXPECT_THAT(actions.say,
              ElementsAre("[run] server 0 (pid 100) ended with exit code 9 (resource): "
                          "[device] cuda:0 is lost"));
  EXPECT_EQ(actions.release, 0U);
  EXPECT_EQ(supervisor.exit_code(), 9);
}

TEST_F(SupervisorTest, ANamedProcessIsTheCauseWhileItStillRuns) {
  Supervisor supervisor = make(OnWorkerLoss::kAbort);
  supervisor.ended(2, code(8), 0);
  supervisor.blamed(100, 8, "[out] disk full");
  EXPECT_THAT(supervisor.tick(1000).say,
              ElementsAre("[run] server 0 (pid 100) failed with exit code 8 (file): [out] disk "
                          "full; stopping the others"));
  end_all(supervisor, {0, 1, 3, 4}, code(128 + SIGTERM));
  EXPECT_EQ(supervisor.exit_code(), 8);
}

TEST_F(SupervisorTest, ANamedProcessThatWasKilledReturnsItsSignal) {
  Supervisor supervisor = make(OnWorkerLoss::kAbort);
  supervisor.ended(3, kShot, 0);
  supervisor.blamed(103, 5, "its connection closed 2.0 s ago");
  EXPECT_THAT(supervisor.tick(1000).say,
              ElementsAre("[run] worker 1 (pid 103) was killed by signal "
                          "9 (SIGKILL): its connection closed 2.0 s ago; stopping the others"));
  EXPECT_EQ(supervisor.exit_code(), 137);
}

TEST_F(SupervisorTest, AForeignProcessIsNotTheCause) {
  Supervisor supervisor = make(OnWorkerLoss::kAbort);
  supervisor.blamed(999, 9, "[device] cuda:0 is lost");
  supervisor.ended(4, code(9), 0);
  EXPECT_THAT(
      supervisor.tick(1000).say,
      ElementsAre("[run] worker 2 (pid 104) ended with exit code 9 (resource); stopping the "
                  "others"));
}

TEST_F(SupervisorTest, AProcessThatLostAPeerIsNotTheCauseIfAnotherFailed) {
  Supervisor supervisor = make(OnWorkerLoss::kAbort);
  supervisor.ended(2, code(5), 0);
  supervisor.ended(0, code(4), 10);
  supervisor.ended(4, code(7), 20);
  supervisor.ended(1, code(8), 30);
  const SupervisorActions actions = supervisor.ended(3, code(5), 40);
  EXPECT_THAT(actions.say,
              ElementsAre("[run] worker 2 (pid 104) ended with exit code 7 (not finite)"))
      << "after the last end there is no wait of a second";
  EXPECT_EQ(supervisor.exit_code(), 7);
}

TEST_F(SupervisorTest, TheFirstToLoseAPeerIsNamedIfNoneFailedOtherwise) {
  Supervisor supervisor = make(OnWorkerLoss::kAbort);
  supervisor.ended(4, code(5), 0);
  supervisor.ended(2, code(4), 1);
  EXPECT_THAT(supervisor.tick(1000).say, ElementsAre(HasSubstr("worker 2 (pid 104)")));
  EXPECT_EQ(supervisor.exit_code(), 5);
}

TEST_F(SupervisorTest, AKilledProcessReturnsItsSignalAsAShellDoes) {
  for (const size_t slot : {0, 1, 2}) {
    Supervisor supervisor = make(OnWorkerLoss::kAbort);
    supervisor.ended(slot, kShot, 0);
    const SupervisorActions actions = supervisor.tick(1000);
    EXPECT_THAT(actions.say, ElementsAre(HasSubstr("was killed by signal 9 (SIGKILL)")));
    EXPECT_EQ(supervisor.exit_code(), 137);
  }
}

TEST_F(SupervisorTest, AProcessThatDoesNotEndWithinTheGraceIsKilledAndNamed) {
  Supervisor supervisor = make(OnWorkerLoss::kAbort);
  supervisor.ended(0, code(8), 0);
  supervisor.tick(1000);
  end_all(supervisor, {1, 2, 3}, code(143));
  ASSERT_EQ(supervisor.deadline_ms(), 10000) << "counts from the failure, not from the signal";
  EXPECT_EQ(supervisor.tick(9999).signal_all, 0);
  const SupervisorActions actions = supervisor.tick(10000);
  EXPECT_EQ(actions.signal_all, SIGKILL);
  EXPECT_THAT(actions.say, ElementsAre("[run] worker 2 (pid 104) did not end within 10 s; killed"));
  EXPECT_EQ(supervisor.deadline_ms(), std::nullopt);
  supervisor.ended(4, kShot, 10001);
  EXPECT_EQ(supervisor.exit_code(), 8);
}

TEST_F(SupervisorTest, AnInterruptIsForwardedOnceAndTheSecondKills) {
  Supervisor supervisor = make(OnWorkerLoss::kAbort);
  SupervisorActions actions = supervisor.signalled(SIGINT, 0);
  EXPECT_EQ(actions.signal_coordinator, SIGINT);
  EXPECT_EQ(actions.signal_all, 0) << "only the coordinator gets the signal";
  EXPECT_THAT(actions.say, ElementsAre("[run] SIGINT: stopping the job; once more kills it"));
  EXPECT_EQ(supervisor.signalled(SIGTERM, 1).signal_all, 0) << "the scheduler repeats its signal";
  end_all(supervisor, {1, 2}, code(130));
  EXPECT_THAT(supervisor.signalled(SIGINT, 100).say, IsEmpty());  // the same signal a second time
  actions = supervisor.signalled(SIGINT, 1000);
  EXPECT_EQ(actions.signal_all, SIGKILL);
  EXPECT_THAT(supervisor.signalled(SIGINT, 1001).say, IsEmpty());
  end_all(supervisor, {0, 3, 4}, kShot);
  EXPECT_EQ(supervisor.exit_code(), 130);
}

TEST_F(SupervisorTest, OtherSignalsAreForwardedUnchanged) {
  for (const int signal : {SIGTERM, SIGHUP}) {
    Supervisor supervisor = make(OnWorkerLoss::kWait);
    EXPECT_EQ(supervisor.signalled(signal, 0).signal_coordinator, signal);
    EXPECT_EQ(supervisor.ended(3, code(75), 1).restart, std::nullopt);
    EXPECT_EQ(supervisor.ended(4, kShot, 1).restart, 4) << "the stop may need the worker";
    supervisor.started(4, 1004);
    end_all(supervisor, {0, 1, 2, 4}, code(75));
    EXPECT_EQ(supervisor.exit_code(), 75);
  }
}

TEST_F(SupervisorTest, AStoppedJobReturnsItsOwnCodeHoweverItWasStopped) {
  for (const bool launcher : {true, false}) {
    Supervisor supervisor = make(OnWorkerLoss::kAbort);
    if (launcher) supervisor.signalled(SIGTERM, 0);
    for (int64_t at_ms : {100, 1000, 20000}) {
      EXPECT_EQ(supervisor.signalled(SIGTERM, at_ms).signal_all, 0)
          << "schedulers repeat the signal";
      if (!launcher) break;
    }
    for (size_t slot : {3, 0, 1, 2, 4}) {
      const SupervisorActions actions = supervisor.ended(slot, code(75), 20001);
      EXPECT_FALSE(actions.hold);
      EXPECT_THAT(actions.say, IsEmpty());
      EXPECT_EQ(actions.restart, std::nullopt);
    }
    EXPECT_EQ(supervisor.exit_code(), 75);
  }
}

TEST_F(SupervisorTest, AllAreSignalledIfTheCoordinatorDoesNotStopTheJob) {
  Supervisor supervisor = make(OnWorkerLoss::kAbort);
  supervisor.signalled(SIGTERM, 0);
  EXPECT_EQ(supervisor.deadline_ms(), 30000);
  EXPECT_EQ(supervisor.tick(29999).signal_all, 0);
  EXPECT_EQ(supervisor.tick(30000).signal_all, SIGTERM);
  EXPECT_EQ(supervisor.tick(40000).signal_all, SIGKILL);
  end_all(supervisor, {0, 1, 2, 3, 4}, kShot);
  EXPECT_EQ(supervisor.exit_code(), 143);
}

TEST_F(SupervisorTest, AReplacedCoordinatorGetsTheStopSignalAgain) {
  Supervisor supervisor = make(OnWorkerLoss::kWait, OnServerLoss::kRestart);
  supervisor.listens();
  supervisor.training_began();
  EXPECT_EQ(supervisor.listens_again().signal_coordinator, 0);
  supervisor.signalled(SIGTERM, 0);
  EXPECT_EQ(supervisor.ended(0, kShot, 10).restart, 0U);
  supervisor.started(0, 200);
  EXPECT_EQ(supervisor.listens_again().signal_coordinator, SIGTERM);
  end_all(supervisor, {0, 1, 2, 3, 4}, code(75));
  EXPECT_EQ(supervisor.exit_code(), 75);
}

TEST_F(SupervisorTest, ASignalAfterTheJobIsDoneHasNoEffect) {
  Supervisor supervisor = make(OnWorkerLoss::kAbort);
  supervisor.signalled(SIGTERM, 0);
  end_all(supervisor, {0, 1, 2, 3, 4}, kDone);
  EXPECT_EQ(supervisor.exit_code(), 0);
}

TEST_F(SupervisorTest, WithContinueTheJobContinuesWithoutAKilledWorker) {
  Supervisor supervisor = make(OnWorkerLoss::kContinue);
  const SupervisorActions actions = supervisor.ended(4, kShot, 0);
  EXPECT_THAT(actions.say, ElementsAre("[run] worker 2 (pid 104) was killed by signal 9 (SIGKILL); "
                                       "the job goes on without it"));
  EXPECT_FALSE(actions.hold);
  EXPECT_EQ(actions.signal_all, 0);
  EXPECT_FALSE(supervisor.stopping());
  end_all(supervisor, {0, 1, 2, 3}, kDone);
  EXPECT_EQ(supervisor.exit_code(), 0);
}

TEST_F(SupervisorTest, WithContinueTheLastWorkersDeathEndsTheJob) {
  Supervisor supervisor = make(OnWorkerLoss::kContinue);
  end_all(supervisor, {2, 3}, kShot);
  EXPECT_FALSE(supervisor.stopping());
  EXPECT_TRUE(supervisor.ended(4, kShot, 0).hold);
  EXPECT_THAT(supervisor.tick(1000).say, ElementsAre(HasSubstr("worker 2 (pid 104) was killed")));
  EXPECT_EQ(supervisor.exit_code(), 137);
}

TEST_F(SupervisorTest, WithWaitAWorkerIsReplacedThreeTimes) {
  Supervisor supervisor = make(OnWorkerLoss::kWait);
  for (int i = 1; i <= 3; ++i) {
    const SupervisorActions actions = supervisor.ended(3, kShot, 0);
    EXPECT_EQ(actions.restart, 3U);
    EXPECT_THAT(actions.say, ElementsAre(HasSubstr("starting a replacement, " + std::to_string(i) +
                                                   " of at most 3")));
    supervisor.started(3, 200 + i);
  }
  const SupervisorActions actions = supervisor.ended(3, kShot, 0);
  EXPECT_EQ(actions.restart, std::nullopt);
  EXPECT_THAT(actions.say, ElementsAre(HasSubstr("worker 1 (pid 203)")));
  EXPECT_FALSE(supervisor.stopping()) << "the coordinator decides how long it waits";
  EXPECT_EQ(supervisor.ended(4, kShot, 0).restart, 4U)
      << "each worker has three replacements of its own";
}

TEST_F(SupervisorTest, AWorkerWithAFailedDeviceCountsAsKilled) {
  Supervisor waiting = make(OnWorkerLoss::kWait);
  const SupervisorActions actions = waiting.ended(3, code(9), 0);
  EXPECT_EQ(actions.restart, 3U);
  EXPECT_THAT(actions.say, ElementsAre(HasSubstr("ended with exit code 9 (resource)")));
  Supervisor going_on = make(OnWorkerLoss::kContinue);
  EXPECT_FALSE(going_on.ended(3, code(9), 0).hold);
  Supervisor strict = make(OnWorkerLoss::kAbort);
  strict.ended(3, code(9), 0);
  strict.tick(1000);
  EXPECT_EQ(strict.exit_code(), 9);
}

TEST_F(SupervisorTest, AnErrorThatTheNextWorkerWouldRepeatEndsTheJobUnderEveryPolicy) {
  for (const OnWorkerLoss policy : {OnWorkerLoss::kWait, OnWorkerLoss::kContinue}) {
    for (const int value : {2, 3, 6, 7}) {
      Supervisor supervisor = make(policy);
      const SupervisorActions actions = supervisor.ended(3, code(value), 0);
      EXPECT_TRUE(actions.hold) << value;
      EXPECT_EQ(actions.restart, std::nullopt);
      supervisor.tick(1000);
      EXPECT_EQ(supervisor.exit_code(), value);
    }
  }
}

// A lost worker would not be replaced, and the coordinator would wait for it until join-timeout.
TEST_F(SupervisorTest, AFailedWorkerBeforeTheStartEndsTheJobUnlessItIsReplaced) {
  for (const Ending& ending : {code(9), code(1), kShot}) {
    for (const OnWorkerLoss policy :
         {OnWorkerLoss::kAbort, OnWorkerLoss::kWait, OnWorkerLoss::kContinue}) {
      Supervisor supervisor({.servers = 1, .workers = 2, .on_worker_loss = policy});
      for (size_t slot = 0; slot < 3; ++slot) supervisor.started(slot, 100);
      const bool replaced = policy == OnWorkerLoss::kWait && ending.code != 9;
      const SupervisorActions actions = supervisor.ended(1, ending, 0);
      EXPECT_EQ(actions.hold, !replaced) << ending.describe();
      EXPECT_EQ(actions.restart, replaced ? std::optional<size_t>(1) : std::nullopt);
      supervisor.tick(1000);
      EXPECT_EQ(supervisor.exit_code(), replaced ? 0 : ending.exit_code());
    }
  }
}

TEST_F(SupervisorTest, ALostServerEndsTheJobUnderEveryPolicy) {
  for (const size_t slot : {0, 1}) {
    Supervisor supervisor = make(OnWorkerLoss::kWait);
    EXPECT_TRUE(supervisor.ended(slot, kShot, 0).hold);
    supervisor.tick(1000);
    EXPECT_EQ(supervisor.exit_code(), 137);
  }
}

TEST_F(SupervisorTest, AWorkerThatHangsAfterTheEndIsKilledAndCountsOnlyUnderAbort) {
  for (const OnWorkerLoss policy : {OnWorkerLoss::kAbort, OnWorkerLoss::kContinue}) {
    Supervisor supervisor = make(policy);
    end_all(supervisor, {0, 1, 2, 3}, kDone);  // at 5000 ms
    ASSERT_EQ(supervisor.deadline_ms(), 15000);
    EXPECT_EQ(supervisor.tick(15000).signal_all, SIGKILL);
    supervisor.ended(4, kShot, 15001);
    EXPECT_EQ(supervisor.exit_code(), policy == OnWorkerLoss::kAbort ? 137 : 0);
  }
}

TEST_F(SupervisorTest, AWorkerThatFailsAfterTheEndIsAFailureOnlyUnderAbort) {
  for (const OnWorkerLoss policy : {OnWorkerLoss::kAbort, OnWorkerLoss::kWait}) {
    Supervisor supervisor = make(policy);
    end_all(supervisor, {0, 1, 2, 3}, kDone);
    EXPECT_THAT(supervisor.ended(4, {.code = 0, .signal = SIGSEGV}, 5001).say,
                ElementsAre(HasSubstr("was killed by signal 11 (SIGSEGV)")));
    EXPECT_EQ(supervisor.exit_code(), policy == OnWorkerLoss::kAbort ? 139 : 0);
  }
}

// The coordinator may have counted the worker as lost, and its server may have released memory that
// it still used.
TEST_F(SupervisorTest, APermanentErrorAfterTheEndIsAFailureOnlyUnderAbort) {
  for (const OnWorkerLoss policy :
       {OnWorkerLoss::kAbort, OnWorkerLoss::kWait, OnWorkerLoss::kContinue}) {
    Supervisor supervisor = make(policy);
    end_all(supervisor, {0, 1, 2, 3}, kDone);
    EXPECT_THAT(supervisor.ended(4, code(7), 5001).say,
                ElementsAre(HasSubstr("ended with exit code 7 (not finite)")));
    EXPECT_EQ(supervisor.exit_code(), policy == OnWorkerLoss::kAbort ? 7 : 0);
  }
}

TEST_F(SupervisorTest, GivingUpStopsTheProcessesAndReturnsTheCode) {
  Supervisor supervisor({.servers = 1, .workers = 1});
  supervisor.started(0, 100);
  const SupervisorActions actions = supervisor.give_up("cannot start", 1, 0);
  EXPECT_THAT(actions.say, ElementsAre("[run] cannot start"));
  EXPECT_EQ(actions.signal_all, SIGTERM);
  supervisor.ended(0, {.code = 143, .signal = 0}, 1);
  EXPECT_TRUE(supervisor.all_ended());
  EXPECT_EQ(supervisor.exit_code(), 1);
}

// Like `make`, for a job that waits for lost servers.
Supervisor make_restarting() {
  Supervisor supervisor({.servers = 2,
                         .workers = 3,
                         .on_worker_loss = OnWorkerLoss::kAbort,
                         .on_server_loss = OnServerLoss::kRestart});
  for (size_t slot = 0; slot < 5; ++slot)
    supervisor.started(slot, 100 + static_cast<int64_t>(slot));
  supervisor.listens();
  return supervisor;
}

TEST_F(SupervisorTest, AKilledServerIsRestartedThreeTimes) {
  for (const size_t slot : {0, 1}) {
    Supervisor supervisor = make_restarting();
    for (int i = 1; i <= 3; ++i) {
      const SupervisorActions actions = supervisor.ended(slot, kShot, 0);
      EXPECT_EQ(actions.restart, slot);
      EXPECT_THAT(actions.say, ElementsAre(HasSubstr("starting a replacement, " +
                                                     std::to_string(i) + " of at most 3")));
      supervisor.started(slot, 200 + i);
    }
    const SupervisorActions actions = supervisor.ended(slot, kShot, 0);
    EXPECT_FALSE(actions.restart);
    EXPECT_TRUE(actions.hold) << "after three replacements the job fails";
  }
}

TEST_F(SupervisorTest, AWorkerInQuarantineCountsAsLost) {
  for (const bool quarantine : {false, true}) {
    Supervisor supervisor({.servers = 1,
                           .workers = 2,
                           .on_worker_loss = OnWorkerLoss::kContinue,
                           .quarantine = quarantine});
    for (size_t slot = 0; slot < 3; ++slot) supervisor.started(slot, 100);
    supervisor.training_began();
    const SupervisorActions first = supervisor.ended(1, code(7), 0);
    EXPECT_EQ(first.hold, !quarantine);
    if (!quarantine) continue;
    EXPECT_THAT(first.say, ElementsAre(HasSubstr("the job goes on without it")));
    EXPECT_TRUE(supervisor.ended(2, code(7), 0).hold) << "no worker is left";
  }
}

TEST_F(SupervisorTest, AServerThatExitsWithAnErrorIsNotRestarted) {
  for (const int error : {1, 2, 5, 9}) {
    Supervisor supervisor = make_restarting();
    EXPECT_FALSE(supervisor.ended(1, code(error), 0).restart) << error;
  }
}

TEST_F(SupervisorTest, ACoordinatorThatNeverListenedIsNotRestarted) {
  Supervisor supervisor({.servers = 2, .workers = 3, .on_server_loss = OnServerLoss::kRestart});
  supervisor.started(0, 100);
  EXPECT_FALSE(supervisor.ended(0, kShot, 0).restart);
}

TEST_F(SupervisorTest, AReplacementThatIsTooLateDoesNotFailTheJob) {
  Supervisor supervisor = make_restarting();
  supervisor.ended(1, kShot, 0);
  supervisor.started(1, 201);
  EXPECT_FALSE(supervisor.ended(1, code(4), 1).hold);
  EXPECT_EQ(supervisor.ended(0, kDone, 2).signal_all, 0);
  end_all(supervisor, {2, 3, 4}, kDone);
  EXPECT_TRUE(supervisor.all_ended());
  EXPECT_EQ(supervisor.exit_code(), 0);
}

}  // namespace
}  // namespace pushpull

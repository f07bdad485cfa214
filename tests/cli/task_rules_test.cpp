#include "cli/run/task_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "common/base/error.h"

namespace pushpull::task_rules_test {
namespace {

using ::testing::HasSubstr;

constexpr size_t kWorker = 0;
constexpr size_t kServer = 1;
const Ending kKilled{.code = 0, .signal = SIGKILL};

Ending code(ErrorCode value) { return {.code = static_cast<int>(value)}; }

TaskRules rules(OnWorkerLoss workers, OnServerLoss servers = OnServerLoss::kAbort) {
  return TaskRules({.on_worker_loss = workers, .on_server_loss = servers}, 2);
}

TEST(TaskRules, AnEndAndAStopAreNoFailures) {
  TaskRules task = rules(OnWorkerLoss::kAbort);
  EXPECT_EQ(task.ended(kWorker, {}).say, "");
  EXPECT_EQ(task.ended(kServer, code(ErrorCode::kStopped)).say, "");
  EXPECT_EQ(task.exit_code(), 0) << "the coordinator reports the stop";
}

TEST(TaskRules, ReplacesAKilledWorkerThreeTimesIfTheJobWaits) {
  TaskRules task = rules(OnWorkerLoss::kWait);
  for (int i = 1; i <= 3; ++i) {
    const auto verdict = task.ended(kWorker, kKilled);
    EXPECT_TRUE(verdict.restart) << i;
    EXPECT_THAT(verdict.say, HasSubstr(std::to_string(i) + " of at most 3"));
  }
  EXPECT_FALSE(task.ended(kWorker, kKilled).restart);
  EXPECT_EQ(task.exit_code(), 0) << "the coordinator waits for a worker, and fails the job";
}

TEST(TaskRules, ReplacesNothingOnceItIsToldToEnd) {
  TaskRules task = rules(OnWorkerLoss::kWait, OnServerLoss::kRestart);
  task.told_to_end();
  EXPECT_FALSE(task.ended(kWorker, {.code = 0, .signal = SIGTERM}).restart);
  EXPECT_FALSE(task.ended(kServer, kKilled).restart);
}

TEST(TaskRules, PoliciesOfWorkersAndServersAreApart) {
  TaskRules task = rules(OnWorkerLoss::kAbort, OnServerLoss::kRestart);
  EXPECT_TRUE(task.ended(kServer, kKilled).restart);
  EXPECT_FALSE(task.ended(kWorker, kKilled).restart);
  EXPECT_EQ(task.exit_code(), 128 + SIGKILL);
}

TEST(TaskRules, AFailureThatAnotherTryWouldRepeatCountsUnderEveryPolicy) {
  for (const auto policy : {OnWorkerLoss::kAbort, OnWorkerLoss::kWait, OnWorkerLoss::kContinue}) {
    TaskRules task = rules(policy);
    EXPECT_FALSE(task.ended(kWorker, code(ErrorCode::kData)).restart);
    task.ended(kServer, code(ErrorCode::kPeerLost));
    EXPECT_EQ(task.exit_code(), static_cast<int>(ErrorCode::kData)) << "the first one";
  }
}

TEST(TaskRules, ALostWorkerIsNoFailureIfTheJobGoesOn) {
  TaskRules task = rules(OnWorkerLoss::kContinue);
  EXPECT_FALSE(task.ended(kWorker, kKilled).restart);
  EXPECT_EQ(task.exit_code(), 0);
}

}  // namespace
}  // namespace pushpull::task_rules_test

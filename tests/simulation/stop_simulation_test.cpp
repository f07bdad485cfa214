// Jobs that are told to end, in whole clusters on a simulated network. Under all faults the run
// stops at a consistent cut, its checkpoint is exactly the computed state, and all processes end.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/simulation/checked_run.h"

namespace pushpull::sim {
namespace {

// Runs the scenario with a stop and counts the runs that stopped.
void stop(Scenario scenario, int& stopped) {
  add_stop(scenario);
  sim::Run run(scenario);
  run.go();
  if (::testing::Test::HasFailure()) return;
  if (run.cluster().coordinator().phase() == wire::PHASE_FINISHED) return run.check();
  if (!run.check_stopped()) return;
  ++stopped;
  // all live workers have heard of the stop
  for (int worker = 0; worker < run.cluster().workers(); ++worker) {
    const std::optional<int> code = run.cluster().exit_code(worker);
    if (!scenario.faults.until_ms && scenario.accidents.empty() && scenario.server_losses.empty()) {
      // a worker that is told before it is a member leaves at once
      const bool early = scenario.all_signalled && code == 143;
      EXPECT_TRUE(early || code == 75) << code.value_or(-1) << ", " << scenario.to_string();
    }
    EXPECT_NE(code, 0) << scenario.to_string();
  }
}

// A lost worker loses the state of its own optimizer.
Scenario job_of(uint64_t seed, const char* strategy) {
  Scenario scenario = draw(seed, strategy);
  if (scenario.job.strategy.kind == StrategyKind::kLocal) {
    scenario.job.optimizer.kind = OptimizerKind::kSgd;
  }
  return scenario;
}

TEST(StopSimulation, CalmJobStopsWithTheBitsOfItsSteps) {
  int stopped = 0;
  for (const uint64_t seed : seeds(2000)) {
    stop(job_of(seed, any_of(seed)), stopped);
    if (::testing::Test::HasFailure()) return;
  }
  expect_some(stopped, "stopped");
}

// 2001: the check of the versions that a push has read did not know the barrier of the stop.
TEST(StopSimulation, JobStopsOnABadNetworkWhenWorkersDie) {
  int stopped = 0;
  for (const uint64_t seed : seeds(2000, {{2001}})) {
    Scenario scenario = job_of(seed, any_of(seed));
    if (seed % 4 != 3) add_faults(scenario);
    const bool backup = scenario.job.strategy.kind == StrategyKind::kBackup;
    if (seed % 4 >= 2) {
      add_accidents(scenario, backup ? OnWorkerLoss::kContinue : OnWorkerLoss::kWait);
    }
    stop(scenario, stopped);
    if (::testing::Test::HasFailure()) return;
  }
  expect_some(stopped, "stopped");
}

// 5575: the coordinator, restarted with a stop request, started its term and stopped it in one turn.
// Its own server then took an older State after that of the stop, and handed out weights beyond it.
TEST(StopSimulation, JobStopsWhenServersDie) {
  int stopped = 0;
  for (const uint64_t seed : seeds(2000, {{5575}})) {
    Scenario scenario = job_of(seed, any_of(seed));
    if (seed % 2 == 0) add_faults(scenario);
    if (seed % 4 == 1) add_accidents(scenario, OnWorkerLoss::kContinue);
    add_server_losses(scenario);
    stop(scenario, stopped);
    if (::testing::Test::HasFailure()) return;
  }
  expect_some(stopped, "stopped");
}

TEST(StopSimulation, JobStopsWhenServersAreReplacedWithinTheTerm) {
  int stopped = 0;
  for (const uint64_t seed : seeds(2000)) {
    Scenario scenario = job_of(seed, seed % 3 == 0 ? rounds_of(seed) : "sync");
    if (seed % 2 == 0) add_faults(scenario);
    if (seed % 4 == 1) add_accidents(scenario, OnWorkerLoss::kContinue);
    add_replaced_servers(scenario);
    if (seed % 5 == 0) scenario.server_losses.front().server = 0;
    stop(scenario, stopped);
    if (::testing::Test::HasFailure()) return;
  }
  expect_some(stopped, "stopped");
}

// ---- checkpoints by signals ----

// Counts the checkpoints that signals have added.
void ask_for_checkpoints(Scenario scenario, int& added) {
  add_checkpoint_signals(scenario);
  sim::Run run(scenario);
  run.go();
  if (::testing::Test::HasFailure()) return;
  added += static_cast<int>(run.cluster().asked_checkpoints.size());
  const bool stops = scenario.stop_ms >= 0;
  const bool finished = run.cluster().coordinator().phase() == wire::PHASE_FINISHED;
  if (!stops || finished) return run.check();
  run.check_stopped();
}

TEST(CheckpointSignalSimulation, CalmJobWritesThemAndGoesOnWithTheSameBits) {
  int added = 0;
  for (const uint64_t seed : seeds(2000)) {
    ask_for_checkpoints(job_of(seed, any_of(seed)), added);
    if (::testing::Test::HasFailure()) return;
  }
  expect_some(added, "added");
}

TEST(CheckpointSignalSimulation, JobWritesThemOnABadNetworkWhenProcessesDie) {
  int added = 0;
  for (const uint64_t seed : seeds(2000)) {
    Scenario scenario = job_of(seed, any_of(seed));
    const bool backup = scenario.job.strategy.kind == StrategyKind::kBackup;
    if (seed % 4 != 3) add_faults(scenario);
    if (seed % 4 >= 2) {
      add_accidents(scenario, backup ? OnWorkerLoss::kContinue : OnWorkerLoss::kWait);
    }
    if (seed % 3 == 0) add_server_losses(scenario);
    ask_for_checkpoints(scenario, added);
    if (::testing::Test::HasFailure()) return;
  }
  expect_some(added, "added");
}

// 272: four signals chose three steps before the first of them was cut. Processes remember two.
TEST(CheckpointSignalSimulation, JobThatWritesThemStops) {
  int added = 0;
  for (const uint64_t seed : seeds(2000, {{272}})) {
    Scenario scenario = job_of(seed, any_of(seed));
    if (seed % 2 == 0) add_faults(scenario);
    if (seed % 5 == 0) add_server_losses(scenario);
    add_stop(scenario);
    ask_for_checkpoints(scenario, added);
    if (::testing::Test::HasFailure()) return;
  }
  expect_some(added, "added");
}

}  // namespace
}  // namespace pushpull::sim

// Jobs that follow their evaluations (stop-when, checkpoint-best), and jobs that evaluate averages of
// the weights (eval-weights), in whole clusters on a simulated network. Under all faults a run with
// step versions ends at the step that its evaluations give, the best checkpoint is that of the best
// evaluation, and evaluations and weights have the bits of a plain loop.
#include <gtest/gtest.h>

#include <string>

#include "ps/members/evaluations.h"
#include "tests/simulation/checked_run.h"

namespace pushpull::sim {
namespace {

// A checkpoint that was written after later evaluations held their results.
constexpr Seeds kWrittenLate = {610470};

Scenario job_of(uint64_t seed) {
  Scenario scenario = draw(seed, any_of(seed));
  Job& job = scenario.job;
  if (job.strategy.kind == StrategyKind::kLocal) job.optimizer.kind = OptimizerKind::kSgd;
  // A checkpoint holds no record of evaluations that this run has not made.
  scenario.start_step = 0;
  scenario.test_samples = std::max<int64_t>(scenario.test_samples, 3 * job.micro_batch);
  job.eval_every = 1 + static_cast<int64_t>(seed % 3);
  job.checkpoint_best = seed % 2 == 0;
  job.stop_when = StopWhen::parse(seed % 5 == 0 ? "metric:2" : "loss:1");
  return scenario;
}

// Returns the step at which the job ends unless it stops early.
int64_t end_of(const Job& job) { return job.stop_after > 0 ? job.stop_after : job.steps; }

// Returns the record after the last evaluation of an uninterrupted run.
EvaluationRecord expected(const Scenario& scenario, Reference& reference,
                          const Barriers& barriers) {
  const Job& job = scenario.job;
  BestEvaluation best(job, measure_of(job, Toy::heads(), scenario.test_samples), {});
  for (int64_t step = 1; step <= end_of(job) && !best.stops(); ++step) {
    if (barriers.is_regular_evaluation(step) || step == job.steps) {
      best.add(reference.evaluation(step));
    }
  }
  return best.record();
}

void follow(const Scenario& scenario, int& stopped) {
  sim::Run run(scenario);
  run.go();
  if (::testing::Test::HasFailure()) return;
  run.check();
  if (::testing::Test::HasFailure()) return;
  const Coordinator& coordinator = run.cluster().coordinator();
  const Barriers& barriers = coordinator.barriers();
  const FollowedEvaluations& followed = coordinator.training()->followed();
  const EvaluationRecord record = followed.record();
  stopped += followed.stopped_early() ? 1 : 0;
  EXPECT_EQ(followed.stopped_early(), barriers.end_step < end_of(scenario.job));
  if (scenario.job.checkpoint_best && record.best_step > 0) {
    ASSERT_TRUE(run.cluster().best) << scenario.to_string();
    EXPECT_EQ(run.cluster().best->step, record.best_step) << scenario.to_string();
  }
  if (scenario.job.strategy.kind != StrategyKind::kSync) return;
  const Toy toy(scenario.job, scenario.elements, scenario.counting);
  Reference reference(scenario.job, toy, scenario.test_samples);
  const EvaluationRecord want = expected(scenario, reference, barriers);
  EXPECT_EQ(record, want) << scenario.to_string();
  if (followed.stopped_early()) {
    EXPECT_EQ(barriers.end_step, want.step) << scenario.to_string();
  }
  if (run.cluster().best) {
    EXPECT_TRUE(same_state(*run.cluster().best, reference.at(want.best_step)));
  }
}

TEST(EvaluationSimulation, CalmJobEndsWhereItsEvaluationsSay) {
  int stopped = 0;
  for (const uint64_t seed : seeds(2000)) {
    follow(job_of(seed), stopped);
    if (::testing::Test::HasFailure()) return;
  }
  expect_some(stopped, "stopped");
}

TEST(EvaluationSimulation, EndsThereOnABadNetworkWhenWorkersDie) {
  int stopped = 0;
  for (const uint64_t seed : seeds(2000)) {
    Scenario scenario = job_of(seed);
    if (seed % 4 != 3) add_faults(scenario);
    const bool backup = scenario.job.strategy.kind == StrategyKind::kBackup;
    if (seed % 4 >= 2) {
      add_accidents(scenario, backup ? OnWorkerLoss::kContinue : OnWorkerLoss::kWait);
    }
    follow(scenario, stopped);
    if (::testing::Test::HasFailure()) return;
  }
  expect_some(stopped, "stopped");
}

TEST(EvaluationSimulation, EndsThereWhenServersDie) {
  int stopped = 0;
  for (const uint64_t seed : seeds(2000, {kWrittenLate})) {
    Scenario scenario = job_of(seed);
    if (seed % 2 == 0) add_faults(scenario);
    add_server_losses(scenario);
    follow(scenario, stopped);
    if (::testing::Test::HasFailure()) return;
  }
  expect_some(stopped, "stopped");
}

Scenario average_of(uint64_t seed) {
  Scenario scenario = draw(seed, any_of(seed));
  Job& job = scenario.job;
  // a replaced worker of local:H begins with new states
  if (job.strategy.kind == StrategyKind::kLocal) job.optimizer.kind = OptimizerKind::kSgd;
  job.optimizer.ema = 0.75;
  job.eval_ema = true;
  job.eval_every = static_cast<int64_t>(seed % 4);
  scenario.on_device = false;  // averages are in host memory
  scenario.test_samples = std::max<int64_t>(scenario.test_samples, 3 * job.micro_batch);
  if (seed % 5 == 0) add_sharing(scenario);
  return scenario;
}

void averages(const Scenario& scenario) {
  sim::Run run(scenario);
  run.go();
  if (!::testing::Test::HasFailure()) run.check();
}

TEST(EvaluationSimulation, AveragesAreEvaluatedAndNeverTrained) {
  for (const uint64_t seed : seeds(2000)) {
    averages(average_of(seed));
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(EvaluationSimulation, AveragesKeepTheirBitsWhenWorkersDie) {
  for (const uint64_t seed : seeds(2000)) {
    Scenario scenario = average_of(seed);
    if (seed % 2 == 0) add_faults(scenario);
    const bool backup = scenario.job.strategy.kind == StrategyKind::kBackup;
    add_accidents(scenario, backup ? OnWorkerLoss::kContinue : OnWorkerLoss::kWait);
    averages(scenario);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(EvaluationSimulation, AveragesKeepTheirBitsWhenServersAreReplaced) {
  for (const uint64_t seed : seeds(2000)) {
    Scenario scenario = average_of(seed / 2 * 6);  // sync
    if (seed % 2 == 0) add_faults(scenario);
    if (seed % 3 == 0) add_accidents(scenario, OnWorkerLoss::kWait);
    add_replaced_servers(scenario);
    averages(scenario);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(EvaluationSimulation, AveragesKeepTheirBitsWhenServersDie) {
  for (const uint64_t seed : seeds(1000)) {
    Scenario scenario = average_of(seed);
    if (seed % 2 == 0) add_faults(scenario);
    add_server_losses(scenario);
    averages(scenario);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace pushpull::sim

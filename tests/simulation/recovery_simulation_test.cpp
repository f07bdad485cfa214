// Servers that are lost and replaced within a term (recovery = peers), in simulated clusters. The
// bits are those of a calm run, with other faults at the same time or without.
#include <gtest/gtest.h>

#include "tests/simulation/checked_run.h"

namespace pushpull::sim {
namespace {

// Counts replaced servers and started terms.
struct Count {
  int64_t replaced = 0;
  int64_t terms = 0;
};

bool passes(const Scenario& scenario, Count& count) {
  Run run(scenario);
  run.go();
  run.check();
  if (::testing::Test::HasFailure()) return false;
  count.terms += run.cluster().recoveries;
  count.replaced += run.cluster().summary->recoveries - run.cluster().recoveries;
  return true;
}

// A job did not end: a push ended as its server was replaced, and did not tell the new one that it
// was the first to expect.
constexpr Seeds kReplacedDuringAPush = {266};

TEST(RecoverySimulation, SyncKeepsItsBitsWhenServersAreReplaced) {
  Count count;
  for (const uint64_t seed : seeds(2000, {kReplacedDuringAPush})) {
    Scenario scenario = draw(seed, "sync");
    if (seed % 2 == 0) add_faults(scenario);
    add_replaced_servers(scenario);
    if (!passes(scenario, count)) return;
  }
  expect_some(count.replaced, "count.replaced");
}

TEST(RecoverySimulation, SyncKeepsItsBitsWhenWorkersDieBesideReplacedServers) {
  Count count;
  for (const uint64_t seed : seeds(2000)) {
    Scenario scenario = draw(seed, "sync");
    if (seed % 2 == 0) add_faults(scenario);
    add_accidents(scenario, seed % 3 == 0 ? OnWorkerLoss::kWait : OnWorkerLoss::kContinue);
    add_replaced_servers(scenario);
    if (seed % 4 == 0) scenario.server_losses.front().server = 0;
    if (!passes(scenario, count)) return;
  }
  expect_some(count.replaced, "count.replaced");
  expect_some(count.terms, "count.terms");
}

TEST(RecoverySimulation, SyncKeepsItsBitsInSharedMemoryWhenServersAreReplaced) {
  Count count;
  for (const uint64_t seed : seeds(1000)) {
    Scenario scenario = draw(seed, "sync");
    add_sharing(scenario);
    add_replaced_servers(scenario);
    if (!passes(scenario, count)) return;
  }
  expect_some(count.replaced, "count.replaced");
}

// Members meet terms whose files are not on disk yet, and coordinators that die before they are.
TEST(RecoverySimulation, SyncKeepsItsBitsWhenFilesAreSlow) {
  Count count;
  for (const uint64_t seed : seeds(1000)) {
    Scenario scenario = draw(seed, "sync");
    if (seed % 2 == 0) add_faults(scenario);
    add_server_losses(scenario);
    if (seed % 4 == 0) add_replaced_servers(scenario);
    if (seed % 3 == 0) scenario.server_losses.front().server = 0;
    scenario.file_us = seed % 5 == 0 ? 6'000'000 : 300'000;
    if (!passes(scenario, count)) return;
  }
  expect_some(count.terms, "count.terms");
}

TEST(RecoverySimulation, LocalStepsKeepTheirBitsWhenServersAreReplaced) {
  Count count;
  for (const uint64_t seed : seeds(1500)) {
    Scenario scenario = draw(seed, rounds_of(seed));
    // a worker that is lost by mistake loses its optimizer state
    scenario.job.optimizer.kind = OptimizerKind::kSgd;
    if (seed % 2 == 0) add_faults(scenario);
    add_replaced_servers(scenario);
    if (!passes(scenario, count)) return;
  }
  expect_some(count.replaced, "count.replaced");
}

}  // namespace
}  // namespace pushpull::sim

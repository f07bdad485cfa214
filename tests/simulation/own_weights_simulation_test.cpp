// Whole clusters whose runs start from initial weights of a worker (model = external): over bad
// connections, with workers that die while they give them, and in later terms. Every run must start
// from these weights, which differ from those that the servers would draw.
#include <gtest/gtest.h>

#include <map>

#include "tests/simulation/checked_run.h"

namespace pushpull::sim {
namespace {

Scenario with_own_weights(uint64_t seed, const std::string& strategy) {
  Scenario scenario = draw(seed, strategy);
  scenario.job.model = "external";
  scenario.start_step = 0;
  // a lost worker loses its optimizer state
  if (scenario.job.strategy.kind == StrategyKind::kLocal) {
    scenario.job.optimizer.kind = OptimizerKind::kSgd;
  }
  // many parts
  scenario.job.slice_bytes = seed % 3 == 0 ? 4096 : 256;
  if (!scenario.counting) scenario.elements += 3000;
  return scenario;
}

// Returns the most workers that have given weights to one term.
size_t givers_of_a_term(const Cluster& cluster) {
  std::map<uint64_t, size_t> by_term;
  size_t most = 0;
  for (const auto& [term, worker] : cluster.givers) most = std::max(most, ++by_term[term]);
  return most;
}

TEST(OwnWeightsSimulation, RunsStartFromThem) {
  for (const uint64_t seed : seeds(1000)) {
    Scenario scenario = with_own_weights(seed, any_of(seed));
    sim::Run run(scenario);
    run.go();
    run.check();
    if (::testing::Test::HasFailure()) return;
    if (run.cluster().givers.size() != 1) return run.complain("not one worker has given weights");
  }
}

TEST(OwnWeightsSimulation, RunsStartFromThemOnABadNetwork) {
  for (const uint64_t seed : seeds(2000)) {
    Scenario scenario = with_own_weights(seed, any_of(seed));
    seed % 2 == 0 ? add_faults(scenario) : add_control_faults(scenario);
    if (!passes(scenario)) return;
  }
}

// Workers die in the first tenths of a second, some of them while they give their weights.
TEST(OwnWeightsSimulation, AnotherWorkerGivesThemIfTheFirstOneDies) {
  int again = 0;
  for (const uint64_t seed : seeds(3000)) {
    Scenario scenario = with_own_weights(seed, any_of(seed));
    if (seed % 4 == 0) add_faults(scenario);
    scenario.job.on_worker_loss = OnWorkerLoss::kWait;
    Dice dice(seed);
    scenario.faults.delay_us = 20'000;
    scenario.faults.until_ms = std::max<int64_t>(scenario.faults.until_ms, 5000);
    scenario.spares = static_cast<int>(dice.between(0, 2));
    for (int64_t i = dice.between(1, 3); i > 0; --i) {
      Accident accident;
      accident.at_ms = dice.between(50, 600);
      accident.worker = static_cast<int>(dice.between(0, scenario.workers - 1));
      if (dice.chance(0.2)) accident.freeze_ms = dice.between(100, 15'000);
      accident.replaced_ms = dice.between(0, 1000);
      scenario.accidents.push_back(accident);
    }
    sim::Run run(scenario);
    run.go();
    run.check();
    if (::testing::Test::HasFailure()) return;
    again += givers_of_a_term(run.cluster()) > 1 ? 1 : 0;
  }
  if (seeds(3000).size() > 100) {
    EXPECT_GT(again, 0) << "no worker died while it gave its weights";
  }
}

// A term without a checkpoint begins again from the weights of a worker.
TEST(OwnWeightsSimulation, LaterTermsTakeThemAgain) {
  int terms = 0;
  for (const uint64_t seed : seeds(2000)) {
    Scenario scenario = with_own_weights(seed, any_of(seed));
    if (seed % 4 == 0) add_faults(scenario);
    if (seed % 3 == 0) add_accidents(scenario, OnWorkerLoss::kWait);
    add_server_losses(scenario);
    if (seed % 2 == 0) scenario.job.checkpoint_every = 0;
    if (seed % 5 == 0) scenario.server_losses.front().server = 0;
    for (ServerLoss& loss : scenario.server_losses) {
      if (seed % 2 == 0) loss.at_ms %= 1000;
    }
    sim::Run run(scenario);
    run.go();
    run.check();
    if (::testing::Test::HasFailure()) return;
    std::set<uint64_t> given;
    for (const auto& [term, worker] : run.cluster().givers) given.insert(term);
    terms += given.size() > 1 ? 1 : 0;
  }
  if (seeds(2000).size() > 100) {
    EXPECT_GT(terms, 0) << "no later term has taken weights of a worker";
  }
}

TEST(OwnWeightsSimulation, ForgedOnesChangeNothing) {
  for (const uint64_t seed : seeds(1500)) {
    Scenario scenario = with_own_weights(seed, any_of(seed));
    if (seed % 3 == 0) add_faults(scenario);
    if (seed % 3 == 1) {
      scenario.job.on_worker_loss = OnWorkerLoss::kWait;
      scenario.accidents.push_back({static_cast<int64_t>(50 + seed % 300), 0, 0, 100});
    }
    add_forgery(scenario);
    if (!passes(scenario)) return;
  }
}

}  // namespace
}  // namespace pushpull::sim

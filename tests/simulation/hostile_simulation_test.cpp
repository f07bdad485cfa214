// Whole clusters in which a process forges messages, or data connections deliver nothing while
// control connections work.
#include <gtest/gtest.h>

#include "tests/simulation/checked_run.h"

namespace pushpull::sim {
namespace {

Scenario any_hostile(uint64_t seed) {
  constexpr const char* kStrategies[] = {"sync",    "async", "backup:1",   "ssp:2",
                                         "local:2", "sync",  "buffered:3", "backup:2"};
  Scenario scenario = draw(seed, kStrategies[seed % 8]);
  // a lost worker loses its optimizer state
  if (scenario.job.strategy.kind == StrategyKind::kLocal) {
    scenario.job.optimizer.kind = OptimizerKind::kSgd;
  }
  return scenario;
}

// Returns true if each worker was killed or ended with one of these codes.
bool ended_with(const Scenario& scenario, const Cluster& cluster, const std::set<int>& codes) {
  for (int i = 0; i < cluster.workers(); ++i) {
    const std::optional<int> code = cluster.exit_code(i);
    if (!code || codes.contains(*code)) continue;
    ADD_FAILURE() << "worker process " << i << " ended with " << *code << "\n  "
                  << scenario.to_string() << "\n  " << cluster.describe();
  }
  return !::testing::Test::HasFailure();
}

constexpr int kUnreachable = static_cast<int>(ErrorCode::kUnreachable);
constexpr int kPeerLost = static_cast<int>(ErrorCode::kPeerLost);

// ---- a process that forges ----

// Counts refused messages.
bool withstands(const Scenario& scenario, int64_t& refused) {
  sim::Run run(scenario);
  run.go();
  run.check();
  if (::testing::Test::HasFailure()) return false;
  refused += run.cluster().refused_forgeries;
  return ended_with(scenario, run.cluster(), {0, kUnreachable, kPeerLost});
}

TEST(HostileSimulation, ForgedMessagesChangeNoWeights) {
  int64_t refused = 0;
  for (const uint64_t seed : seeds(1500)) {
    Scenario scenario = any_hostile(seed);
    if (seed % 4 == 1) add_faults(scenario);
    add_forgery(scenario);
    if (!withstands(scenario, refused)) return;
  }
  EXPECT_GT(refused, 0);
}

TEST(HostileSimulation, ForgedMessagesChangeNoWeightsWhenMembersDie) {
  int64_t refused = 0;
  for (const uint64_t seed : seeds(1500)) {
    Scenario scenario = any_hostile(seed);
    if (seed % 4 == 0) add_faults(scenario);
    if (seed % 3 > 0) {
      add_accidents(scenario, seed % 2 == 0 ? OnWorkerLoss::kWait : OnWorkerLoss::kContinue);
    }
    const bool by_peers = scenario.job.strategy.kind == StrategyKind::kSync ||
                          scenario.job.strategy.kind == StrategyKind::kLocal;
    if (seed % 3 == 2 && by_peers) {
      add_replaced_servers(scenario);
    } else if (seed % 3 != 1) {
      add_server_losses(scenario);
    }
    const int64_t compute_us = scenario.compute_us;
    add_forgery(scenario);
    scenario.compute_us = compute_us;
    if (!withstands(scenario, refused)) return;
  }
  EXPECT_GT(refused, 0);
}

// ---- partitions ----

TEST(HostileSimulation, ShortPartitionOfDataConnectionsCostsNoMember) {
  for (const uint64_t seed : seeds(1500)) {
    Scenario scenario = any_hostile(seed);
    add_short_partitions(scenario);
    sim::Run run(scenario);
    run.go();
    run.check();
    if (::testing::Test::HasFailure()) return;
    if (run.cluster().lost_members > 0) return run.complain("a member was given up");
    if (!ended_with(scenario, run.cluster(), {0})) return;
  }
}

// Disabled: one of its first 1,200 seeds fails, and the cause is not known yet.
TEST(HostileSimulation, DISABLED_LongPartitionOfDataConnectionsCostsWorkersNotTheJob) {
  int64_t lost = 0;
  for (const uint64_t seed : seeds(1500)) {
    Scenario scenario = any_hostile(seed);
    if (seed % 4 == 0) add_faults(scenario);
    if (seed % 3 == 0) scenario.job.on_worker_loss = OnWorkerLoss::kContinue;
    const bool by_peers = scenario.job.strategy.kind == StrategyKind::kSync ||
                          scenario.job.strategy.kind == StrategyKind::kLocal;
    if (seed % 5 == 0 && by_peers) add_replaced_servers(scenario);
    add_long_partitions(scenario);
    sim::Run run(scenario);
    run.go();
    run.check();
    if (::testing::Test::HasFailure()) return;
    lost += run.cluster().lost_members;
    if (!ended_with(scenario, run.cluster(), {0, kUnreachable, kPeerLost})) return;
  }
  EXPECT_GT(lost, 0);
}

}  // namespace
}  // namespace pushpull::sim

// Whole clusters in which a process forges messages, or data connections deliver nothing while
// control connections work.
#include <gtest/gtest.h>

#include <algorithm>

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
constexpr int kProtocol = static_cast<int>(ErrorCode::kProtocol);
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
  expect_some(refused, "refused");
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
  expect_some(refused, "refused");
}

// ---- a worker with other data ----

// A result of an evaluation that ended after its worker had heard of the next term counted there.
constexpr Seeds kResultOfAnEarlierTerm = {3954};

// It comes again and again while the members of a later term gather, and is often the first to
// declare its data.
TEST(HostileSimulation, OtherDataInALaterTermLockNoWorkerOut) {
  int64_t refused = 0;
  for (const uint64_t seed : seeds(1500, {kResultOfAnEarlierTerm})) {
    Scenario scenario = any_hostile(seed);
    if (seed % 4 == 0) add_faults(scenario);
    add_server_losses(scenario);
    Dice dice(seed);
    for (const ServerLoss& loss : scenario.server_losses) {
      for (int64_t i = dice.between(1, 4); i > 0; --i) {
        const int64_t gathers_ms = loss.server == 0 ? loss.back_ms : dice.between(1900, 2100);
        Newcomer newcomer{loss.at_ms + gathers_ms + dice.between(0, 100), "other", false};
        newcomer.once_trained = true;
        scenario.newcomers.push_back(newcomer);
      }
    }
    sim::Run run(scenario);
    run.go();
    run.check();
    if (::testing::Test::HasFailure()) return;
    if (!ended_with(scenario, run.cluster(), {0, kUnreachable, kPeerLost, kProtocol})) return;
    for (int i = 0; i < run.cluster().workers(); ++i) {
      if (run.cluster().exit_code(i) == kProtocol) ++refused;
    }
  }
  expect_some(refused, "refused");
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

// A job did not end: replacements drew the evaluation of a barrier before the lease that one server
// lacked, and waited for that server.
constexpr Seeds kEvaluationBeforeLostLease = {494};

TEST(HostileSimulation, LongPartitionOfDataConnectionsCostsWorkersNotTheJob) {
  int64_t lost = 0;
  for (const uint64_t seed : seeds(1500, {kEvaluationBeforeLostLease})) {
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
  expect_some(lost, "lost");
}

// A job did not end: no worker drew the lease that one server lacked.
constexpr Seeds kNoRoomForLostLease = {52};

// A worker dies after its push has reached server 0 only, and none takes its place. The others hold
// all leases that they may hold, of steps behind the barrier that the other server cannot open.
TEST(HostileSimulation, LeaseThatOneServerLacksIsComputedThoughAllOthersWaitForThatServer) {
  for (const uint64_t seed : seeds(1000, {kNoRoomForLostLease})) {
    Scenario scenario = draw(seed, seed % 2 == 0 ? "async" : buffers_of(seed / 2));
    Dice dice(seed);
    scenario.job.on_worker_loss = OnWorkerLoss::kContinue;
    scenario.job.eval_every = dice.between(1, 3);
    scenario.servers = static_cast<int>(dice.between(2, 3));
    scenario.workers = static_cast<int>(dice.between(2, 4));
    scenario.elements = 4096;
    scenario.job.slice_bytes = 4096;
    scenario.compute_us = dice.chance(0.3) ? 300'000 : 30'000;
    const int64_t at_ms = dice.between(70, 500);
    scenario.partitions.push_back({1, 0, at_ms, 60'000});
    // not before the start, which would wait for another worker
    const int64_t killed_ms = std::max<int64_t>(300, at_ms + dice.between(0, 1500));
    scenario.accidents.push_back({killed_ms, 0, 0, -1});
    if (!passes(scenario)) return;
  }
}

}  // namespace
}  // namespace pushpull::sim

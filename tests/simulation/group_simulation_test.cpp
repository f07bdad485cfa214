// Whole clusters whose workers divide the model in groups, over bad connections between workers and servers and
// between workers, with members that die at any time. Under sync the weights have the bits of the undivided
// model in a plain loop; under ssp each micro-batch counts once.
#include <gtest/gtest.h>

#include "tests/simulation/checked_run.h"

namespace pushpull::sim {
namespace {

// A stage without slices never began its push.
constexpr Seeds kNoSlices = {2};
// A task became void after the push of its first node: the push never ended. Hang on a calm network.
constexpr Seeds kOpenPush = {110};
// The coordinator named a member that had left at the end.
constexpr Seeds kMemberHasLeft = {26};
constexpr Seeds kShareWithoutGroup = {7};
// A worker that had been stopped finished a task of an earlier attempt.
constexpr Seeds kEarlierAttempt = {248};
// All slices had reached the next version, and server 0 lacked the losses of a lost stage: hang.
constexpr Seeds kLostLosses = {323};
constexpr Seeds kLostLossesOfServers = {944};
constexpr Seeds kLostLossesAtTheEnd = {1796};
// A group began at an old version, which only a server that was catching up still had.
constexpr Seeds kBeganTooEarly = {610881};
// A group began a task on weights in place, and the pull had to start anew: they were not contiguous.
constexpr Seeds kBeganTwice = {620626};
// A group that had to evaluate waited for the weights of the step after the evaluation.
constexpr Seeds kPullKeptFromEvaluation = {610837};
// A stage named version 0 of a server of which it had read nothing.
constexpr Seeds kNothingRead = {44};
// A server read the gradients of an acknowledged push, which waited for other stages, when its worker had written
// others there.
constexpr Seeds kAcknowledgedEarly = {128};
// A member that failed waited for the reason, longer than the others waited for it: all were lost again and again.
constexpr Seeds kEachLossCostsAll = {2034};
// One stage evaluated again, and the other found servers past that barrier: hang.
constexpr Seeds kOneEvaluates = {1087};

const char* stale_of(uint64_t seed) {
  constexpr const char* kStrategies[] = {"ssp:1", "ssp:2", "ssp:5"};
  return kStrategies[seed % 3];
}

OnWorkerLoss loss_of(uint64_t seed) {
  return seed % 3 == 0 ? OnWorkerLoss::kContinue : OnWorkerLoss::kWait;
}

// Checks the run, and that no evaluation is missing unless messages are lost: a result may be lost with its worker.
bool passes_with_evaluations(const Scenario& scenario) {
  sim::Run run(scenario);
  run.go();
  run.check();
  if (::testing::Test::HasFailure()) return false;
  const Barriers barriers = run.barriers_of_run();
  for (int64_t step = scenario.start_step + 1; step <= barriers.end_step; ++step) {
    const bool due =
        scenario.test_samples > 0 && scenario.gentle() && barriers.evaluation_due(step);
    if (!due || run.cluster().evaluations.contains(step)) continue;
    run.complain("no evaluation at step " + std::to_string(step));
    return false;
  }
  return true;
}

TEST(GroupSimulation, CalmGroupsGiveTheBitsOfThePlainLoop) {
  for (const uint64_t seed : seeds(500, {kNoSlices, kOpenPush})) {
    if (!passes_with_evaluations(draw_groups(seed, "sync"))) return;
  }
}

TEST(GroupSimulation, KeepTheirBitsInSharedMemory) {
  for (const uint64_t seed : seeds(500, {kAcknowledgedEarly, kBeganTwice})) {
    Scenario scenario = draw_groups(seed, seed % 4 == 0 ? stale_of(seed) : "sync");
    add_sharing(scenario);
    if (seed % 2 == 0) add_faults(scenario);
    if (seed % 3 == 0) add_accidents(scenario, loss_of(seed));
    if (!passes(scenario)) return;
  }
}

TEST(GroupSimulation, KeepTheirBitsOnABadNetwork) {
  for (const uint64_t seed : seeds(1000, {kMemberHasLeft})) {
    Scenario scenario = draw_groups(seed, "sync");
    seed % 5 < 4 ? add_faults(scenario) : add_control_faults(scenario);
    if (!passes_with_evaluations(scenario)) return;
  }
}

TEST(GroupSimulation, KeepTheirBitsWhenMembersAreReplaced) {
  for (const uint64_t seed : seeds(1500, {kShareWithoutGroup, kEarlierAttempt})) {
    Scenario scenario = draw_groups(seed, "sync");
    if (seed % 2 == 0) add_faults(scenario);
    add_accidents(scenario, OnWorkerLoss::kWait);
    if (!passes_with_evaluations(scenario)) return;
  }
}

TEST(GroupSimulation, KeepTheirBitsWhenOtherGroupsContinue) {
  for (const uint64_t seed : seeds(1500)) {
    Scenario scenario = draw_groups(seed, "sync");
    if (seed % 2 == 0) add_faults(scenario);
    add_accidents(scenario, OnWorkerLoss::kContinue);
    if (!passes_with_evaluations(scenario)) return;
  }
}

// Steps are divided anew when another group is complete.
TEST(GroupSimulation, KeepTheirBitsWhenMoreGroupsJoin) {
  int cuts = 0;
  for (const uint64_t seed : seeds(2000)) {
    Scenario scenario = draw_groups(seed, "sync");
    scenario.compute_us = seed % 2 == 0 ? 20'000 : 200'000;
    scenario.job.steps += 20;
    scenario.job.stop_after = 0;
    scenario.write_us = std::min<int64_t>(scenario.write_us, 500'000);
    if (seed % 3 == 0) add_faults(scenario);
    if (seed % 4 > 0) add_accidents(scenario, OnWorkerLoss::kContinue);
    scenario.job.on_worker_loss = OnWorkerLoss::kContinue;
    for (int64_t n = 0; n < scenario.job.stages + static_cast<int64_t>(seed % 3); ++n) {
      scenario.newcomers.push_back({n * 300 + static_cast<int64_t>(seed % 1000)});
    }
    sim::Run run(scenario);
    run.go();
    run.check();
    if (::testing::Test::HasFailure()) return;
    cuts += run.cluster().coordinator().state_for_self().cuts_size();
  }
  expect_some(cuts, "cuts");
}

TEST(GroupSimulation, KeepTheirBitsWhenServersDie) {
  for (const uint64_t seed : seeds(1500, {kLostLossesOfServers})) {
    Scenario scenario = draw_groups(seed, "sync");
    if (seed % 2 == 0) add_faults(scenario);
    if (seed % 4 < 2) add_accidents(scenario, loss_of(seed));
    add_server_losses(scenario);
    if (!passes(scenario)) return;
  }
}

TEST(GroupSimulation, KeepTheirBitsWhenOtherServersTakeThePlacesOfLostOnes) {
  for (const uint64_t seed : seeds(1500, {kLostLossesAtTheEnd, kBeganTooEarly})) {
    Scenario scenario = draw_groups(seed, "sync");
    if (seed % 2 == 0) add_faults(scenario);
    if (seed % 4 < 2) add_accidents(scenario, loss_of(seed));
    add_replaced_servers(scenario);
    if (!passes(scenario)) return;
  }
}

TEST(GroupSimulation, KeepTheirBitsWhenConnectionsAreCut) {
  for (const uint64_t seed : seeds(2000, {kLostLosses, kEachLossCostsAll})) {
    Scenario scenario = draw_groups(seed, "sync");
    if (seed % 2 == 0) add_faults(scenario);
    if (seed % 8 < 3) add_accidents(scenario, loss_of(seed));
    if (seed % 3 > 0) seed % 5 < 3 ? add_short_partitions(scenario) : add_long_partitions(scenario);
    if (seed % 3 < 2) {
      seed % 7 < 4 ? add_short_peer_partitions(scenario) : add_long_peer_partitions(scenario);
    }
    if (!passes(scenario)) return;
  }
}

// A worker that computes does not answer, so the others give up no earlier than the coordinator.
TEST(GroupSimulation, NoMemberIsLostInAShortPartition) {
  for (const uint64_t seed : seeds(500)) {
    Scenario scenario = draw_groups(seed, seed % 4 == 0 ? stale_of(seed) : "sync");
    add_short_peer_partitions(scenario);
    sim::Run run(scenario);
    run.go();
    run.check();
    if (::testing::Test::HasFailure()) return;
    if (run.cluster().lost_members > 0) return run.complain("a member was lost");
  }
}

TEST(GroupSimulation, LeasesOfGroupsCountOnce) {
  constexpr const char* kStrategies[] = {"async", "buffered:2", "async", "buffered:3"};
  for (const uint64_t seed : seeds(3000)) {
    Scenario scenario = draw_groups(seed, kStrategies[seed % 4]);
    if (seed % 3 > 0) add_faults(scenario);
    if (seed % 5 > 0) add_accidents(scenario, loss_of(seed / 5));
    if (seed % 7 == 0) add_server_losses(scenario);
    if (seed % 11 < 3) add_sharing(scenario);
    if (seed % 13 == 0) add_short_peer_partitions(scenario);
    if (!passes(scenario)) return;
  }
}

// Stage 0 tells the others which step is next, because the servers do not wait for the group.
TEST(GroupSimulation, BackupTakesOneSetOfPushesOfWholeGroups) {
  for (const uint64_t seed : seeds(1500)) {
    Scenario scenario = draw_groups(seed, backups_of(seed));
    if (seed % 3 > 0) add_faults(scenario);
    if (seed % 4 == 0) add_sharing(scenario);
    if (!passes(scenario)) return;
  }
}

TEST(GroupSimulation, BackupTakesOneSetOfPushesWhenMembersAndServersDie) {
  for (const uint64_t seed : seeds(3000, {kPullKeptFromEvaluation})) {
    Scenario scenario = draw_groups(seed, backups_of(seed));
    if (seed % 2 == 0) add_faults(scenario);
    if (seed % 4 > 0) add_accidents(scenario, loss_of(seed));
    if (seed % 5 == 0) add_server_losses(scenario);
    if (seed % 7 < 3) add_short_peer_partitions(scenario);
    if (!passes(scenario)) return;
  }
}

// Workers' programs divide the model: each declares its stage and gives its initial weights, and is replaced by
// one of the same stage.
Scenario with_declared_stages(uint64_t seed, const std::string& strategy) {
  Scenario scenario = draw_groups(seed, strategy);
  scenario.job.model = "external";
  scenario.start_step = 0;
  scenario.job.slice_bytes = seed % 3 == 0 ? 4096 : 256;  // many parts of initial weights
  return scenario;
}

TEST(GroupSimulation, DeclaredStagesKeepTheirBits) {
  for (const uint64_t seed : seeds(1500)) {
    Scenario scenario = with_declared_stages(seed, seed % 4 == 0 ? stale_of(seed) : "sync");
    if (seed % 8 == 0) {
      add_control_faults(scenario);
    } else if (seed % 2 == 0) {
      add_faults(scenario);
    }
    if (seed % 8 >= 3) add_accidents(scenario, loss_of(seed));
    for (Accident& accident : scenario.accidents) {
      if (accident.replaced_ms < 0) accident.replaced_ms = 500;  // a spare may have another stage
    }
    if (seed % 5 == 0 && seed % 8 > 0) add_server_losses(scenario);
    if (!passes(scenario)) return;
  }
}

// Checkpoints are asked for, and some jobs told to end, at random moments.
TEST(GroupSimulation, StopAndWriteCheckpointsWithTheBitsOfTheirSteps) {
  int stopped = 0;
  for (const uint64_t seed : seeds(1500)) {
    Scenario scenario = draw_groups(seed, seed % 3 == 0 ? stale_of(seed) : "sync");
    if (seed % 2 == 0) add_faults(scenario);
    if (seed % 4 == 1) add_accidents(scenario, loss_of(seed));
    if (seed % 5 == 0) add_server_losses(scenario);
    add_checkpoint_signals(scenario);
    if (seed % 7 < 5) add_stop(scenario);
    scenario.write_us = std::min<int64_t>(scenario.write_us, 2'000'000);
    sim::Run run(scenario);
    run.go();
    if (::testing::Test::HasFailure()) return;
    if (run.cluster().coordinator().phase() == wire::PHASE_FINISHED) {
      run.check();
    } else if (run.check_stopped()) {
      ++stopped;
    }
    if (::testing::Test::HasFailure()) return;
  }
  expect_some(stopped, "stopped");
}

TEST(GroupSimulation, StaleGroupsTakeEachMicroBatchOnce) {
  for (const uint64_t seed : seeds(3000, {kNothingRead, kOneEvaluates})) {
    Scenario scenario = draw_groups(seed, stale_of(seed));
    if (seed % 4 > 0) add_faults(scenario);
    if (seed % 8 >= 3) {
      add_accidents(scenario, seed % 2 == 0 ? OnWorkerLoss::kContinue : OnWorkerLoss::kWait);
    }
    if (seed % 5 == 0) add_server_losses(scenario);
    if (seed % 7 == 0) add_short_peer_partitions(scenario);
    if (!passes(scenario)) return;
  }
}

}  // namespace
}  // namespace pushpull::sim

// Whole clusters with memory shared between servers and workers, under all faults. Gradients and
// weights are read in the memory of their sender, and released memory is spoilt. A failing run
// prints its seed, as in simulation_test.cpp.
#include <gtest/gtest.h>

#include <functional>

#include "tests/simulation/checked_run.h"

namespace pushpull::sim {
namespace {

// A newcomer's weights of any version lay in two generations, and the newcomer asked for them
// endlessly.
constexpr Seeds kTwoGenerations = {18, 137, 160};
// The server had been told that weights are no longer read, and the weights fit a new share.
constexpr Seeds kLetGo = {1616};
// A slice was sent twice and lost once: its bytes kept the window of a pull closed forever.
constexpr Seeds kClosedWindow = {1122, 3680};

// Returns the number of runs.
size_t share_everything(const std::function<Scenario(uint64_t)>& calm, uint64_t count,
                        std::initializer_list<Seeds> regressions = {},
                        const std::function<void(const Cluster&)>& look = {}) {
  int64_t gradients = 0;
  int64_t weights = 0;
  int64_t in_place = 0;
  int64_t side_by_side = 0;
  bool several = false;
  const std::vector<uint64_t> all = seeds(count, regressions);
  for (const uint64_t seed : all) {
    Scenario scenario = calm(seed);
    add_sharing(scenario);
    if (seed % 8 < 5) add_faults(scenario);
    if (seed % 2 == 0) {
      add_accidents(scenario, seed % 3 == 0 ? OnWorkerLoss::kWait : OnWorkerLoss::kContinue);
    }
    Run run(scenario);
    run.go();
    run.check();
    if (::testing::Test::HasFailure()) return 0;
    gradients += run.cluster().referred_gradients;
    weights += run.cluster().referred_weights;
    in_place += run.cluster().in_place_tasks;
    side_by_side += run.cluster().side_by_side_tasks;
    several = several || scenario.servers > 1;
    if (look) look(run.cluster());
  }
  if (all.size() == 1) return 1;  // a single run may have had nothing to share
  expect_some(gradients, "gradients");
  expect_some(weights, "weights");
  expect_some(in_place, "in_place");
  if (several) {
    EXPECT_GT(side_by_side, 0);
  }
  return all.size();
}

TEST(SharedMemorySimulation, SyncKeepsItsBits) {
  share_everything([](uint64_t seed) { return draw(seed, "sync"); }, 2000,
                   {kTwoGenerations, kClosedWindow});
}

TEST(SharedMemorySimulation, AsyncAndSspTakeEachMicroBatchOnce) {
  share_everything([](uint64_t seed) { return draw(seed, strategy_of(seed / 16)); }, 2000);
}

// A server reads a buffered push after its worker has overwritten the memory.
TEST(SharedMemorySimulation, BufferedTakesEachMicroBatchOnce) {
  share_everything([](uint64_t seed) { return draw(seed, buffers_of(seed / 16)); }, 1500);
}

TEST(SharedMemorySimulation, BackupTakesOneSetOfPushes) {
  share_everything([](uint64_t seed) { return draw(seed, backups_of(seed / 16)); }, 2000);
}

// Workers read copies on the host, which live as long as their originals.
TEST(SharedMemorySimulation, ServersOnDevicesKeepTheirBits) {
  int64_t servers = 0;
  const size_t runs = share_everything(
      [](uint64_t seed) {
        constexpr const char* kStrategies[] = {"sync", "async", "backup:1", "buffered:3"};
        Scenario scenario = draw(seed, kStrategies[seed / 16 % 4]);
        scenario.on_device = true;
        return scenario;
      },
      1000, {}, [&](const Cluster& cluster) { servers += cluster.servers_on_devices; });
  if (runs == 1) return;
  EXPECT_GT(servers, 10);
}

// Returns a job of many workers, in which shares are taken over again and again.
Scenario taken_over(uint64_t seed, int servers) {
  Scenario scenario =
      draw(seed, seed % 4 < 2 ? strategy_of(1 + seed / 16 % 3) : backups_of(seed / 16));
  scenario.servers = servers;
  scenario.workers = 6;
  scenario.job.global_batch = 8 * scenario.job.micro_batch;
  scenario.job.steps = 10;
  scenario.job.stop_after = 0;
  scenario.job.eval_every = 1;
  scenario.compute_us = 300'000;
  return scenario;
}

// A worker that takes over a share during a pull has released its weights.
TEST(SharedMemorySimulation, NewOwnerOfAShareReadsNoReleasedWeights) {
  share_everything([](uint64_t seed) { return taken_over(seed, 1); }, 500, {kLetGo});
}

TEST(SharedMemorySimulation, NewOwnerOfAShareReadsNoReleasedWeightsOfSeveralServers) {
  share_everything([](uint64_t seed) { return taken_over(seed, 3); }, 500);
}

TEST(SharedMemorySimulation, LocalStepsKeepTheirBits) {
  share_everything(
      [](uint64_t seed) {
        Scenario scenario = draw(seed, rounds_of(seed / 16));
        // a lost worker loses its optimizer state
        scenario.job.optimizer.kind = OptimizerKind::kSgd;
        return scenario;
      },
      2000, {kTwoGenerations, kClosedWindow});
}

}  // namespace
}  // namespace pushpull::sim

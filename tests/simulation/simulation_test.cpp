// Whole clusters on a simulated network and clock, thousands of schedules, each a function of its
// seed. A failing schedule prints the seed. PUSHPULL_SIM_SEED=N runs only that seed of each test,
// PUSHPULL_SIM_SCALE=10 runs ten times as many, PUSHPULL_SIM_TRACE=1 prints each message that
// arrives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>

#include "tests/simulation/checked_run.h"
#include "worker/exchange/push_pull.h"

namespace pushpull::sim {
namespace {

// A part of a push was lost, and answers to repeated pulls kept it from being repeated: hang.
constexpr Seeds kLostPart = {69, 106};
constexpr Seeds kLostPushAsync = {16, 706, 1749};
constexpr Seeds kLeaseWaitHidesLostPush = {16, 144};
constexpr Seeds kClosedWindow = {403};
// A worker with two shares pushed twice without an acknowledgement of the first push.
constexpr Seeds kTwoPushesAhead = {2};
// An evaluation used the weights of a later step.
constexpr Seeds kWrongBarrier = {75, 110, 508, 2280};
// A worker was lost before the start and no spare took its place: hang.
constexpr Seeds kSpareBeforeStart = {59, 73};
// A newcomer passed a barrier that waited for the previous checkpoint.
constexpr Seeds kPastClosedBarrier = {45, 2034};

TEST(Simulation, CalmSyncGivesTheBitsOfAPlainLoop) {
  for (const uint64_t seed : seeds(1000)) {
    if (!passes(draw(seed, "sync"))) return;
  }
}

TEST(Simulation, SyncKeepsItsBitsOnABadNetwork) {
  for (const uint64_t seed : seeds(2000, {kLostPart, kPastClosedBarrier, kClosedWindow})) {
    Scenario scenario = draw(seed, "sync");
    add_faults(scenario);
    if (!passes(scenario)) return;
  }
}

TEST(Simulation, SyncKeepsItsBitsWhenWorkersAreReplaced) {
  for (const uint64_t seed : seeds(2000, {kLostPart, kSpareBeforeStart, kPastClosedBarrier})) {
    Scenario scenario = draw(seed, "sync");
    if (seed % 2 == 0) add_faults(scenario);
    add_accidents(scenario, OnWorkerLoss::kWait);
    if (!passes(scenario)) return;
  }
}

TEST(Simulation, SyncKeepsItsBitsWhenServersDie) {
  for (const uint64_t seed : seeds(1500)) {
    Scenario scenario = draw(seed, "sync");
    if (seed % 2 == 0) add_faults(scenario);
    if (seed % 4 == 1) add_accidents(scenario, OnWorkerLoss::kWait);
    add_server_losses(scenario);
    if (!passes(scenario)) return;
  }
}

TEST(Simulation, SyncKeepsItsBitsWhenServersAndWorkersDieAndTheOthersContinue) {
  for (const uint64_t seed : seeds(1000)) {
    Scenario scenario = draw(seed, "sync");
    if (seed % 2 == 0) add_faults(scenario);
    add_accidents(scenario, OnWorkerLoss::kContinue);
    add_server_losses(scenario);
    if (!passes(scenario)) return;
  }
}

TEST(Simulation, SyncKeepsItsBitsWhenTheOthersContinue) {
  for (const uint64_t seed : seeds(2000, {kLostPart, kSpareBeforeStart, kPastClosedBarrier})) {
    Scenario scenario = draw(seed, "sync");
    if (seed % 2 == 0) add_faults(scenario);
    add_accidents(scenario, OnWorkerLoss::kContinue);
    if (!passes(scenario)) return;
  }
}

// The premise of the tests above: forward begins early, and layers wait. (push_pull_early_test
// covers a task that is dropped.)
TEST(Simulation, ForwardBeginsEarlyAndLayersWait) {
  int64_t tasks = 0;
  int64_t waits = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Scenario scenario = draw(seed, "sync");
    scenario.servers = 3;
    scenario.elements += 3000;
    scenario.job.slice_bytes = 4096;
    scenario.compute_us = 300'000;
    scenario.flush_bytes = 1;  // a lost worker has then pushed only some of its slices
    scenario.start_step = 0;
    if (scenario.workers < 2) continue;
    add_accidents(scenario, OnWorkerLoss::kContinue);
    Cluster cluster(scenario, nullptr);
    cluster.run();
    ASSERT_EQ(cluster.trouble(), "") << scenario.to_string() << "\n  " << cluster.describe();
    tasks += cluster.early_tasks;
    waits += cluster.early_waits;
  }
  EXPECT_GT(tasks, 100);
  EXPECT_GT(waits, 100);
}

TEST(Simulation, AsyncAndSspTakeEachMicroBatchOnce) {
  for (const uint64_t seed : seeds(1500)) {
    if (!passes(draw(seed, strategy_of(seed)))) return;
  }
}

TEST(Simulation, AsyncAndSspTakeEachMicroBatchOnceOnABadNetwork) {
  for (const uint64_t seed :
       seeds(2000, {kLostPushAsync, kLeaseWaitHidesLostPush, kWrongBarrier})) {
    Scenario scenario = draw(seed, strategy_of(seed));
    add_faults(scenario);
    if (!passes(scenario)) return;
  }
}

TEST(Simulation, AsyncAndSspTakeEachMicroBatchOnceWhenWorkersDie) {
  for (const uint64_t seed : seeds(3000, {kLostPushAsync, kLeaseWaitHidesLostPush, kTwoPushesAhead,
                                          kWrongBarrier, kSpareBeforeStart})) {
    Scenario scenario = draw(seed, strategy_of(seed));
    if (seed % 8 < 4) add_faults(scenario);
    add_accidents(scenario, seed % 3 == 0 ? OnWorkerLoss::kWait : OnWorkerLoss::kContinue);
    if (!passes(scenario)) return;
  }
}

TEST(Simulation, AsyncAndSspTakeEachMicroBatchOnceWhenServersDie) {
  for (const uint64_t seed : seeds(1500)) {
    Scenario scenario = draw(seed, seed % 5 == 0 ? buffers_of(seed) : strategy_of(seed));
    if (seed % 2 == 0) add_faults(scenario);
    if (seed % 4 < 2) {
      add_accidents(scenario, seed % 3 == 0 ? OnWorkerLoss::kWait : OnWorkerLoss::kContinue);
    }
    add_server_losses(scenario);
    if (!passes(scenario)) return;
  }
}

TEST(Simulation, BufferedTakesEachMicroBatchOnceAndLeavesNothingAtABarrier) {
  for (const uint64_t seed : seeds(1000)) {
    if (!passes(draw(seed, buffers_of(seed)))) return;
  }
}

TEST(Simulation, BufferedTakesEachMicroBatchOnceWhenWorkersDieOnABadNetwork) {
  for (const uint64_t seed : seeds(2500)) {
    Scenario scenario = draw(seed, buffers_of(seed));
    if (seed % 8 < 6) add_faults(scenario);
    if (seed % 2 == 0) {
      add_accidents(scenario, seed % 3 == 0 ? OnWorkerLoss::kWait : OnWorkerLoss::kContinue);
    }
    if (!passes(scenario)) return;
  }
}

TEST(Simulation, BackupTakesOneSetOfPushesForAllServers) {
  for (const uint64_t seed : seeds(1000)) {
    if (!passes(draw(seed, backups_of(seed)))) return;
  }
}

TEST(Simulation, BackupTakesOneSetOfPushesWhenServersDie) {
  for (const uint64_t seed : seeds(1000)) {
    Scenario scenario = draw(seed, backups_of(seed));
    if (seed % 2 == 0) add_faults(scenario);
    if (seed % 4 < 2) add_accidents(scenario, OnWorkerLoss::kContinue);
    add_server_losses(scenario);
    if (!passes(scenario)) return;
  }
}

TEST(Simulation, BackupTakesOneSetOfPushesOnABadNetwork) {
  for (const uint64_t seed : seeds(2000)) {
    Scenario scenario = draw(seed, backups_of(seed));
    add_faults(scenario);
    if (!passes(scenario)) return;
  }
}

TEST(Simulation, BackupTakesOneSetOfPushesWhenWorkersDie) {
  for (const uint64_t seed : seeds(3000)) {
    Scenario scenario = draw(seed, backups_of(seed));
    if (seed % 8 < 4) add_faults(scenario);
    add_accidents(scenario, seed % 3 == 0 ? OnWorkerLoss::kWait : OnWorkerLoss::kContinue);
    if (!passes(scenario)) return;
  }
}

TEST(Simulation, CalmLocalStepsGiveTheBitsOfAPlainLoop) {
  for (const uint64_t seed : seeds(1000)) {
    if (!passes(draw(seed, rounds_of(seed)))) return;
  }
}

TEST(Simulation, LocalStepsKeepTheirBitsUnderFaults) {
  for (const uint64_t seed : seeds(3000)) {
    Scenario scenario = draw(seed, rounds_of(seed));
    // a lost worker loses its optimizer state
    scenario.job.optimizer.kind = OptimizerKind::kSgd;
    if (seed % 8 < 5) add_faults(scenario);
    if (seed % 2 == 0) {
      add_accidents(scenario, seed % 3 == 0 ? OnWorkerLoss::kWait : OnWorkerLoss::kContinue);
    }
    if (!passes(scenario)) return;
  }
}

// ---- checkpoints ----

// Each due checkpoint is written, with its own bits, and a run ends with its last one.
TEST(Simulation, AllDueCheckpointsAreWrittenThoughTheDiskIsSlower) {
  const auto strategy = [](uint64_t seed) {
    constexpr const char* kWhole[] = {"sync", "backup:1", "local:2"};
    return seed % 4 < 3 ? std::string(kWhole[seed % 4]) : strategy_of(seed / 4);
  };
  for (const uint64_t seed : seeds(1500)) {
    Scenario scenario = draw(seed, strategy(seed));
    scenario.job.checkpoint_every = 1;
    scenario.write_us = seed % 3 == 0 ? 15'000'000 : 200'000;
    scenario.compute_us = 5'000;
    // a lost worker loses its optimizer state
    if (seed % 4 == 2) scenario.job.optimizer.kind = OptimizerKind::kSgd;
    if (seed % 2 == 0) add_sharing(scenario);
    if (seed % 8 >= 5) add_faults(scenario);
    if (!passes(scenario)) return;
  }
}

TEST(Simulation, TrainingWaitsForASlowDiskAndReportsItOnce) {
  Scenario scenario = draw(1, "sync");
  scenario.job.steps = 8;
  scenario.job.stop_after = 0;
  scenario.start_step = 0;
  scenario.job.checkpoint_every = 1;
  scenario.write_us = 15'000'000;
  Cluster slow(scenario, nullptr);
  slow.run();
  EXPECT_EQ(slow.trouble(), "");
  EXPECT_EQ(slow.checkpoints.size(), 8U);
  EXPECT_EQ(slow.checkpoint_waits, 1);
  scenario.job.steps = 2;  // both are held while the initial weights are hashed
  Cluster behind(scenario, nullptr);
  behind.run();
  EXPECT_EQ(behind.trouble(), "");
  EXPECT_EQ(behind.checkpoints.size(), 2U);
  EXPECT_EQ(behind.checkpoint_waits, 0);
}

// All members cut between the same two steps, though none knew of the cut before.
TEST(Simulation, CheckpointsChosenByTheCoordinatorChangeNoBits) {
  constexpr const char* kStrategies[] = {"sync",  "local:3", "backup:1",   "async",
                                         "ssp:1", "ssp:5",   "buffered:3", "sync"};
  std::map<std::string, int64_t> chosen;
  for (const uint64_t seed : seeds(800)) {
    const std::string strategy = kStrategies[seed % 8];
    Scenario scenario = draw(seed, strategy);
    if (strategy == "local:3") scenario.job.optimizer.kind = OptimizerKind::kSgd;
    add_chosen_checkpoints(scenario);
    if (seed % 16 >= 8) add_faults(scenario);
    const bool continues = strategy != "local:3" && seed % 8 > 0;
    if (seed % 5 < 2) {
      add_accidents(scenario, continues ? OnWorkerLoss::kContinue : OnWorkerLoss::kWait);
    }
    const int64_t compute_us = scenario.compute_us;
    if (seed % 3 == 0) add_server_losses(scenario);
    scenario.compute_us = compute_us;
    sim::Run run(scenario);
    run.go();
    run.check();
    if (HasFailure()) return;
    chosen[strategy] += std::ssize(run.cluster().checkpoints) - 1;
  }
  for (const char* strategy : kStrategies) {
    expect_some(chosen[strategy], std::string(strategy) + ": checkpoints that were chosen");
  }
}

// A term goes back to the newest complete checkpoint.
TEST(Simulation, FailedCheckpointsCostNeitherBitsNorMicroBatches) {
  int64_t lost = 0;
  for (const uint64_t seed : seeds(1000)) {
    Scenario scenario = draw(seed, seed % 2 == 0 ? "sync" : strategy_of(seed));
    scenario.job.checkpoint_every = 1 + static_cast<int64_t>(seed % 3);
    scenario.job.on_checkpoint_failure = OnCheckpointFailure::kContinue;
    scenario.write_fails = 0.5;
    if (seed % 4 < 2) add_faults(scenario);
    if (seed % 3 > 0) add_server_losses(scenario);
    sim::Run run(scenario);
    run.go();
    run.check();
    if (HasFailure()) return;
    lost += std::ssize(run.cluster().lost_checkpoints);
  }
  expect_some(lost, "failed checkpoints");
}

// ---- codecs ----

// Returns the checkpoints of a job in which no worker dies.
std::map<int64_t, FlatState> checkpoints_of(const Scenario& scenario) {
  Cluster cluster(scenario, nullptr);
  cluster.run();
  EXPECT_EQ(cluster.trouble(), "") << scenario.to_string() << "\n  " << cluster.describe();
  return cluster.checkpoints;
}

// Residuals depend only on the assignment of micro-batches to sums.
TEST(Simulation, LossyCodecGivesTheSameBitsOnAnyServersAndAnyNetwork) {
  constexpr const char* kStrategies[] = {"sync", "local:1", "local:3"};
  constexpr const char* kCodecs[] = {"fp16", "bf16", "int8", "topk:0.05", "topk:0.001"};
  int64_t lossy = 0;
  for (const uint64_t seed : seeds(1000)) {
    Scenario calm = draw(seed, kStrategies[seed % 3]);
    calm.start_step = 0;
    calm.job.heartbeat_timeout_s = 1e6;  // no worker is lost
    calm.job.codec = Codec::parse(kCodecs[seed % 5]);
    if (seed % 4 == 0) calm.job.codec_tensors = TensorCodecs::parse("*weight=int8");
    Scenario wild = calm;
    add_faults(wild);
    wild.faults.reset = 0.0;  // with a broken control connection a worker may be given up
    wild.seed += 1'000'000;
    wild.servers = 1 + (calm.servers + 1) % 4;
    wild.job.slice_bytes = calm.job.slice_bytes == 4096 ? 1 << 20 : 4096;
    wild.flush_bytes = calm.flush_bytes == 1 ? 1 << 20 : 1;
    Scenario plain = calm;
    plain.job.codec = {};
    plain.job.codec_tensors = {};
    const auto expected = checkpoints_of(calm);
    const auto got = checkpoints_of(wild);
    ASSERT_EQ(expected.size(), got.size()) << wild.to_string();
    for (const auto& [step, state] : got) {
      ASSERT_TRUE(same_state(state, expected.at(step)))
          << "step " << step << ", " << wild.to_string();
    }
    lossy += same_state(expected.rbegin()->second, checkpoints_of(plain).rbegin()->second) ? 0 : 1;
  }
  expect_some(lossy, "codecs that changed bits");
}

// Returns the text of a failed job, and checks that all its processes end.
std::string failure_of(const Scenario& scenario) {
  Cluster cluster(scenario, nullptr);
  cluster.run();
  EXPECT_EQ(cluster.trouble(), "") << scenario.to_string() << "\n  " << cluster.describe();
  if (cluster.coordinator().phase() == wire::PHASE_FINISHED) return "";
  EXPECT_EQ(cluster.coordinator().failure_code(), ErrorCode::kPeerLost) << scenario.to_string();
  return cluster.coordinator().failure_text();
}

TEST(Simulation, LostWorkerEndsTheJobByNameUnderAbort) {
  int aborted = 0;
  for (const uint64_t seed : seeds(200)) {
    Scenario scenario = draw(seed, seed % 2 == 0 ? "sync" : strategy_of(seed));
    scenario.start_step = 0;
    scenario.job.on_worker_loss = OnWorkerLoss::kAbort;
    scenario.compute_us = 1'000'000;
    scenario.accidents.push_back({500, 0, 0, -1});
    const std::string text = failure_of(scenario);
    if (::testing::Test::HasFailure()) return;
    if (text.empty()) continue;  // the job was over, or the worker had nothing to compute
    EXPECT_THAT(text, ::testing::HasSubstr("(host, pid 2000)"));
    EXPECT_THAT(text, ::testing::HasSubstr("on-worker-loss=abort"));
    ++aborted;
  }
  expect_some(aborted, "aborted");
}

// Its heartbeats continue, so that only missing progress shows the stall.
TEST(Simulation, WorkerWithAStalledTrainerIsReplaced) {
  constexpr const char* kStrategies[] = {"sync", "async", "ssp:2", "local:2", "buffered:2"};
  int replaced = 0;
  for (const uint64_t seed : seeds(1000)) {
    Scenario scenario = draw(seed, kStrategies[seed % 5]);
    if (seed % 5 == 3) scenario.job.optimizer.kind = OptimizerKind::kSgd;
    if (seed % 2 == 0) add_faults(scenario);
    scenario.job.on_worker_loss = OnWorkerLoss::kWait;
    scenario.job.progress_timeout_s = 20.0;
    Dice dice(seed);
    Accident accident;
    accident.at_ms = dice.between(0, 500);
    accident.worker = static_cast<int>(dice.between(0, scenario.workers - 1));
    accident.trainer_only = true;
    scenario.accidents.push_back(accident);
    sim::Run run(scenario);
    run.go();
    run.check();
    if (::testing::Test::HasFailure()) return;
    replaced += run.cluster().workers() > scenario.workers ? 1 : 0;
  }
  expect_some(replaced, "replaced");
}

TEST(Simulation, LostServerEndsTheJobByName) {
  for (const uint64_t seed : seeds(200)) {
    Scenario scenario = draw(seed, seed % 2 == 0 ? "sync" : strategy_of(seed));
    if (scenario.servers < 2) continue;
    scenario.start_step = 0;
    scenario.compute_us = 1'000'000;
    scenario.server_killed_ms = 500;
    const std::string text = failure_of(scenario);
    if (::testing::Test::HasFailure()) return;
    if (text.empty()) continue;
    EXPECT_THAT(text, ::testing::HasSubstr("(host, pid 1001)"));
  }
}

// Two servers, one of them a step ahead when a newcomer asks, and another step when it asks again.
TEST(PushPull, NewcomerStartsOverIfItsVersionIsGone) {
  PushPullSetup setup;
  setup.incarnation = 1;
  setup.total_elements = 2048;
  setup.servers = 2;
  setup.barriers.end_step = 9;
  PushPull worker(setup);
  wire::State state;
  state.set_version(1);
  state.add_assigned()->set_hi(setup.job.micro_batches());
  worker.on_state(state, 0);
  const std::vector<float> weights(1024);
  const auto answer = [&](int server, int64_t pull, int64_t version) {
    Message message;
    message.header.mutable_weights()->set_pull(pull);
    message.header.mutable_weights()->add_slices()->set_slice(server);
    message.header.mutable_weights()->mutable_slices(0)->set_version(version);
    message.payloads.push_back({nullptr, std::as_bytes(std::span<const float>(weights))});
    EXPECT_TRUE(worker.on_message(server, message, 0));
  };
  worker.next(0);
  answer(0, 1, 3);
  answer(1, 1, 2);
  EXPECT_EQ(worker.waiting_for(), "weights of step 2 of server 0, 1");
  answer(1, 2, 2);
  Message too_late;
  too_late.header.mutable_status()->set_pull(2);
  EXPECT_TRUE(worker.on_message(0, too_late, 0));
  worker.next(0);
  answer(0, 3, 4);
  answer(1, 3, 4);
  const Task task = worker.next(0);
  EXPECT_EQ(task.kind, Task::kCompute);
  EXPECT_EQ(task.step, 4);
}

}  // namespace
}  // namespace pushpull::sim

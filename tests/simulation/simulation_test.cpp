// Whole clusters on a simulated network and clock, thousands of schedules, each of them a function
// of its seed. A failing one prints the seed; PUSHPULL_SIM_SEED=N runs only that seed of every
// test, PUSHPULL_SIM_SCALE=10 runs ten times as many,
// PUSHPULL_SIM_TRACE=1 prints every message that arrives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "tests/simulation/cluster.h"
#include "tests/simulation/share_reference.h"
#include "worker/push_pull.h"

namespace pushpull::sim {
namespace {

// Seeds that have found something, by test; they run first, however many follow.
using Seeds = std::initializer_list<uint64_t>;
// A part of a push was lost, and the answers to repeated pulls never made it be repeated: hang.
constexpr Seeds kLostPart = {69, 106};
constexpr Seeds kLostPushAsync = {16, 706, 1749};
constexpr Seeds kLeaseWaitHidesLostPush = {16, 144};
// A worker with two shares pushed twice without knowing whether the first push had arrived.
constexpr Seeds kTwoPushesAhead = {2};
// An evaluation was computed with weights of a later step.
constexpr Seeds kWrongBarrier = {75, 110, 508, 2280};
// A worker was lost before the start and a spare was not taken: hang.
constexpr Seeds kSpareBeforeStart = {59, 73};
// A newcomer passed a barrier that waited for the checkpoint before it.
constexpr Seeds kPastClosedBarrier = {45, 2034};

std::vector<uint64_t> seeds(uint64_t count, std::initializer_list<Seeds> regressions = {}) {
  std::vector<uint64_t> found;
  for (const auto& one : regressions) found.insert(found.end(), one);
  return seeds_to_run(count, std::move(found));
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

bool same_state(const FlatState& a, const FlatState& b) {
  bool same = same_bits(a.weights, b.weights) && a.updates == b.updates;
  for (size_t s = 0; s < b.slots.size(); ++s) same = same && same_bits(a.slots.at(s), b.slots[s]);
  return same && a.slots.size() == b.slots.size();
}

bool same_evaluation(const Evaluation& a, const Evaluation& b) {
  return a.correct == b.correct && a.total == b.total && a.loss == b.loss;
}

// One run with its checks; the first that fails ends the test with everything about it.
class Run {
 public:
  explicit Run(const Scenario& scenario)
      : scenario_(scenario),
        toy_(scenario.job, scenario.elements, scenario.counting),
        reference_(scenario_.job, toy_, scenario.test_samples) {}

  void go() {
    std::shared_ptr<const FlatState> start;
    if (scenario_.start_step > 0) {
      start = std::make_shared<FlatState>(start_state());
    }
    cluster_ = std::make_unique<Cluster>(scenario_, start);
    cluster_->run();
    if (!cluster_->trouble().empty()) return complain(cluster_->trouble());
    if (cluster_->coordinator().phase() != wire::PHASE_FINISHED) complain("it did not finish");
    check_start(start);
  }

  FlatState start_state() {
    const int64_t step = scenario_.start_step;
    if (scenario_.counting) return toy_.counted_state(step);
    if (by_shares()) return ShareReference::start_of(scenario_.job, reference_, step);
    return reference_.at(step);
  }

  bool backup() const { return scenario_.job.strategy.kind == StrategyKind::kBackup; }
  bool by_shares() const { return backup() || scenario_.job.strategy.kind == StrategyKind::kLocal; }

  const Cluster& cluster() const { return *cluster_; }

  void complain(const std::string& what) {
    FAIL() << what << "\n  " << scenario_.to_string() << "\n  " << cluster_->describe();
  }

  // Every checkpoint and evaluation of the run.
  void check_sync() {
    for (const auto& [step, state] : cluster_->checkpoints) {
      if (!same_state(state, reference_.at(step))) {
        return complain("other bits at step " + std::to_string(step));
      }
    }
    for (const auto& [step, got] : cluster_->evaluations) {
      if (!same_evaluation(got, reference_.evaluation(step))) {
        return complain("another evaluation at step " + std::to_string(step));
      }
    }
  }

  // The same, computed again from the sets of pushes that were chosen (backup), or from the shares
  // (local). A part that a server had taken from another set would show.
  void check_shares() {
    const Coordinator& coordinator = cluster_->coordinator();
    ShareReference shares(scenario_.job, toy_, reference_, coordinator.barriers(),
                          coordinator.shares());
    FlatState start = ShareReference::start_of(scenario_.job, reference_, scenario_.start_step);
    if (scenario_.start_step == 0) start.updates = 0;
    const auto states = shares.train(start, cluster_->chosen);
    for (const auto& [step, state] : cluster_->checkpoints) {
      if (!states.contains(step) || !same_state(state, states.at(step))) {
        return complain("other bits at step " + std::to_string(step));
      }
    }
    for (const auto& [step, got] : cluster_->evaluations) {
      if (!states.contains(step) ||
          !same_evaluation(got, reference_.evaluation_of(states.at(step)))) {
        return complain("another evaluation at step " + std::to_string(step));
      }
    }
    if (backup()) check_sets();
  }

  void check_sets() {
    const Coordinator& coordinator = cluster_->coordinator();
    const auto pushes = static_cast<size_t>(coordinator.shares() - scenario_.job.strategy.backups);
    const Barriers& barriers = coordinator.barriers();
    int64_t micro_batches = 0;
    HashSum drawn;
    for (const auto& [step, set] : cluster_->chosen) {
      if (set.size() != pushes) return complain("a set of " + std::to_string(set.size()));
      for (int i = 0; i < coordinator.shares(); ++i) {
        const Range share = share_range(i, coordinator.shares(), scenario_.job.micro_batches());
        if (std::count(set.begin(), set.end(), share.lo) == 0) continue;
        micro_batches += share.size();
        for (int64_t m = share.lo; m < share.hi; ++m) drawn += Toy::data_hash(step, m);
      }
    }
    const int64_t steps = barriers.end_step - barriers.start_step;
    const TrainingRecord& record = coordinator.training();
    if (std::ssize(cluster_->chosen) != steps ||
        record.pushes_applied() != steps * static_cast<int64_t>(pushes)) {
      return complain(std::to_string(record.pushes_applied()) + " pushes applied");
    }
    if (record.samples() != micro_batches * scenario_.job.micro_batch) {
      return complain(std::to_string(record.samples()) + " samples");
    }
    if (record.data_hash() != drawn) return complain("another data hash");
    for (int64_t step = barriers.start_step + 1; step <= barriers.end_step; ++step) {
      if (scenario_.test_samples > 0 && barriers.evaluation_due(step) &&
          !cluster_->evaluations.contains(step)) {
        return complain("no evaluation at step " + std::to_string(step));
      }
    }
  }

  void check_counting() {
    for (const auto& [step, state] : cluster_->checkpoints) {
      const std::string what = toy_.check_counts(state.weights, step, step);
      if (!what.empty()) return complain("checkpoint " + std::to_string(step) + ": " + what);
    }
    if (scenario_.job.strategy.kind != StrategyKind::kSsp) return;
    for (const wire::Stats& stats : cluster_->server_stats()) {
      if (stats.clock_gap_max() > scenario_.job.strategy.staleness) {
        return complain("a clock gap of " + std::to_string(stats.clock_gap_max()));
      }
    }
  }

  // Checkpoints at every barrier, an evaluation at the end, each sample once.
  void check_whole() {
    const Barriers& barriers = cluster_->coordinator().barriers();
    for (int64_t step = barriers.start_step + 1; step <= barriers.end_step; ++step) {
      if (barriers.checkpoint_due(step) && !cluster_->checkpoints.contains(step)) {
        return complain("no checkpoint at step " + std::to_string(step));
      }
    }
    if (scenario_.test_samples > 0 && !cluster_->evaluations.contains(barriers.end_step)) {
      return complain("no evaluation at the end");
    }
    const int64_t steps = barriers.end_step - barriers.start_step;
    if (!backup() &&
        cluster_->coordinator().training().samples() != steps * scenario_.job.global_batch) {
      return complain("samples were counted twice or not at all");
    }
    if (backup()) return;  // counts what it has chosen
    HashSum drawn;
    for (int64_t step = barriers.start_step; step < barriers.end_step; ++step) {
      for (int64_t m = 0; m < scenario_.job.micro_batches(); ++m) drawn += Toy::data_hash(step, m);
    }
    if (cluster_->coordinator().training().data_hash() != drawn) complain("another data hash");
  }

  // What is hashed as the initial weights.
  void check_start(const std::shared_ptr<const FlatState>& start) {
    const std::vector<float>& want = start ? start->weights : reference_.at(0).weights;
    if (!same_bits(cluster_->start_weights, want)) complain("other weights at the start");
  }

  void check() {
    if (!::testing::Test::HasFailure()) check_whole();
    if (::testing::Test::HasFailure()) return;
    scenario_.counting ? check_counting() : by_shares() ? check_shares() : check_sync();
  }

 private:
  const Scenario scenario_;
  Toy toy_;
  Reference reference_;
  std::unique_ptr<Cluster> cluster_;
};

bool passes(const Scenario& scenario) {
  Run run(scenario);
  run.go();
  run.check();
  return !::testing::Test::HasFailure();
}

const char* strategy_of(uint64_t seed) {
  constexpr const char* kStrategies[] = {"async", "ssp:1", "ssp:2", "ssp:5"};
  return kStrategies[seed % 4];
}

TEST(Simulation, CalmSyncGivesTheBitsOfAPlainLoop) {
  for (const uint64_t seed : seeds(1000)) {
    if (!passes(draw(seed, "sync"))) return;
  }
}

TEST(Simulation, SyncKeepsItsBitsOnABadNetwork) {
  for (const uint64_t seed : seeds(2000, {kLostPart, kPastClosedBarrier})) {
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

TEST(Simulation, SyncKeepsItsBitsWhenTheOthersGoOn) {
  for (const uint64_t seed : seeds(2000, {kLostPart, kSpareBeforeStart, kPastClosedBarrier})) {
    Scenario scenario = draw(seed, "sync");
    if (seed % 2 == 0) add_faults(scenario);
    add_accidents(scenario, OnWorkerLoss::kContinue);
    if (!passes(scenario)) return;
  }
}

// What the tests above rely on: forward does begin early, and layers wait. (A task that is dropped
// is in push_pull_early_test.)
TEST(Simulation, ForwardBeginsEarlyAndLayersWait) {
  int64_t tasks = 0;
  int64_t waits = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Scenario scenario = draw(seed, "sync");
    scenario.early = true;
    scenario.servers = 3;
    scenario.elements += 3000;
    scenario.job.slice_bytes = 4096;
    scenario.compute_us = 300'000;
    scenario.flush_bytes = 1;  // so a lost worker has pushed some of its slices and not others
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

TEST(Simulation, AsyncAndSspTakeEveryMicroBatchOnce) {
  for (const uint64_t seed : seeds(1500)) {
    if (!passes(draw(seed, strategy_of(seed)))) return;
  }
}

TEST(Simulation, AsyncAndSspTakeEveryMicroBatchOnceOnABadNetwork) {
  for (const uint64_t seed :
       seeds(2000, {kLostPushAsync, kLeaseWaitHidesLostPush, kWrongBarrier})) {
    Scenario scenario = draw(seed, strategy_of(seed));
    add_faults(scenario);
    if (!passes(scenario)) return;
  }
}

TEST(Simulation, AsyncAndSspTakeEveryMicroBatchOnceThoughWorkersDie) {
  for (const uint64_t seed : seeds(3000, {kLostPushAsync, kLeaseWaitHidesLostPush, kTwoPushesAhead,
                                          kWrongBarrier, kSpareBeforeStart})) {
    Scenario scenario = draw(seed, strategy_of(seed));
    if (seed % 8 < 4) add_faults(scenario);
    add_accidents(scenario, seed % 3 == 0 ? OnWorkerLoss::kWait : OnWorkerLoss::kContinue);
    if (!passes(scenario)) return;
  }
}

const char* backups_of(uint64_t seed) {
  constexpr const char* kStrategies[] = {"backup:1", "backup:2", "backup:4"};
  return kStrategies[seed % 3];
}

TEST(Simulation, BackupTakesOneSetOfPushesForAllServers) {
  for (const uint64_t seed : seeds(1000)) {
    if (!passes(draw(seed, backups_of(seed)))) return;
  }
}

TEST(Simulation, BackupTakesOneSetOfPushesOnABadNetwork) {
  for (const uint64_t seed : seeds(2000)) {
    Scenario scenario = draw(seed, backups_of(seed));
    add_faults(scenario);
    if (!passes(scenario)) return;
  }
}

TEST(Simulation, BackupTakesOneSetOfPushesThoughWorkersDie) {
  for (const uint64_t seed : seeds(3000)) {
    Scenario scenario = draw(seed, backups_of(seed));
    if (seed % 8 < 4) add_faults(scenario);
    add_accidents(scenario, seed % 3 == 0 ? OnWorkerLoss::kWait : OnWorkerLoss::kContinue);
    if (!passes(scenario)) return;
  }
}

const char* rounds_of(uint64_t seed) {
  constexpr const char* kStrategies[] = {"local:1", "local:2", "local:3", "local:7"};
  return kStrategies[seed % 4];
}

TEST(Simulation, CalmLocalStepsGiveTheBitsOfAPlainLoop) {
  for (const uint64_t seed : seeds(1000)) {
    if (!passes(draw(seed, rounds_of(seed)))) return;
  }
}

TEST(Simulation, LocalStepsKeepTheirBitsWhateverHappens) {
  for (const uint64_t seed : seeds(3000)) {
    Scenario scenario = draw(seed, rounds_of(seed));
    // the state of others is gone with the worker that had it
    scenario.job.optimizer.kind = OptimizerKind::kSgd;
    if (seed % 8 < 5) add_faults(scenario);
    if (seed % 2 == 0) {
      add_accidents(scenario, seed % 3 == 0 ? OnWorkerLoss::kWait : OnWorkerLoss::kContinue);
    }
    if (!passes(scenario)) return;
  }
}

// ---- shared memory ----

// Gradients and weights are read where their sender has written them; what it has let go of is
// spoilt.
void share_everything(const std::function<Scenario(uint64_t)>& calm, uint64_t count) {
  int64_t gradients = 0;
  int64_t weights = 0;
  for (const uint64_t seed : seeds(count)) {
    Scenario scenario = calm(seed);
    add_sharing(scenario);
    if (seed % 8 < 5) add_faults(scenario);
    if (seed % 2 == 0) {
      add_accidents(scenario, seed % 3 == 0 ? OnWorkerLoss::kWait : OnWorkerLoss::kContinue);
    }
    Run run(scenario);
    run.go();
    run.check();
    if (::testing::Test::HasFailure()) return;
    gradients += run.cluster().referred_gradients;
    weights += run.cluster().referred_weights;
  }
  EXPECT_GT(gradients, 0);
  EXPECT_GT(weights, 0);
}

TEST(SharedMemorySimulation, SyncKeepsItsBits) {
  share_everything([](uint64_t seed) { return draw(seed, "sync"); }, 2000);
}

TEST(SharedMemorySimulation, AsyncAndSspTakeEveryMicroBatchOnce) {
  share_everything([](uint64_t seed) { return draw(seed, strategy_of(seed / 16)); }, 2000);
}

TEST(SharedMemorySimulation, BackupTakesOneSetOfPushes) {
  share_everything([](uint64_t seed) { return draw(seed, backups_of(seed / 16)); }, 2000);
}

// Whoever takes over a share while it asks for weights has let go of those that it has.
TEST(SharedMemorySimulation, WhoTakesOverAShareReadsNothingThatItHasLetGoOf) {
  share_everything(
      [](uint64_t seed) {
        Scenario scenario =
            draw(seed, seed % 4 < 2 ? strategy_of(1 + seed / 16 % 3) : backups_of(seed / 16));
        scenario.servers = 1;
        scenario.workers = 6;
        scenario.job.global_batch = 8 * scenario.job.micro_batch;
        scenario.job.steps = 10;
        scenario.job.stop_after = 0;
        scenario.job.eval_every = 1;
        scenario.compute_us = 300'000;
        return scenario;
      },
      1000);
}

TEST(SharedMemorySimulation, LocalStepsKeepTheirBits) {
  share_everything(
      [](uint64_t seed) {
        Scenario scenario = draw(seed, rounds_of(seed / 16));
        // the state of others is gone with the worker that had it
        scenario.job.optimizer.kind = OptimizerKind::kSgd;
        return scenario;
      },
      2000);
}

// ---- codecs ----

// Checkpoints of a job whose workers all live.
std::map<int64_t, FlatState> checkpoints_of(const Scenario& scenario) {
  Cluster cluster(scenario, nullptr);
  cluster.run();
  EXPECT_EQ(cluster.trouble(), "") << scenario.to_string() << "\n  " << cluster.describe();
  return cluster.checkpoints;
}

// Residuals depend on who sums what, and on nothing else.
TEST(Simulation, ALossyCodecGivesTheSameBitsOnAnyServersAndAnyNetwork) {
  constexpr const char* kStrategies[] = {"sync", "local:1", "local:3"};
  constexpr const char* kCodecs[] = {"fp16", "bf16", "int8", "topk:0.05", "topk:0.001"};
  int64_t lossy = 0;
  for (const uint64_t seed : seeds(1000)) {
    Scenario calm = draw(seed, kStrategies[seed % 3]);
    calm.start_step = 0;
    calm.job.heartbeat_timeout_s = 1e6;  // nobody is lost
    calm.job.codec = Codec::parse(kCodecs[seed % 5]);
    if (seed % 4 == 0) calm.job.codec_tensors = TensorCodecs::parse("*weight=int8");
    Scenario wild = calm;
    add_faults(wild);
    wild.faults.reset = 0.0;  // a worker whose control connection breaks may be given up
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
  EXPECT_GT(lossy, 0) << "the codecs have lost nothing: nothing was tested";
}

// What an end by failure looks like: the text, and that nobody is left behind.
std::string failure_of(const Scenario& scenario) {
  Cluster cluster(scenario, nullptr);
  cluster.run();
  EXPECT_EQ(cluster.trouble(), "") << scenario.to_string() << "\n  " << cluster.describe();
  if (cluster.coordinator().phase() == wire::PHASE_FINISHED) return "";
  EXPECT_EQ(cluster.coordinator().failure_code(), ErrorCode::kPeerLost) << scenario.to_string();
  return cluster.coordinator().failure_text();
}

TEST(Simulation, ALostWorkerEndsTheJobByNameWhereItShall) {
  int aborted = 0;
  for (const uint64_t seed : seeds(200)) {
    Scenario scenario = draw(seed, seed % 2 == 0 ? "sync" : strategy_of(seed));
    scenario.start_step = 0;
    scenario.job.on_worker_loss = OnWorkerLoss::kAbort;
    scenario.compute_us = 1'000'000;
    scenario.accidents.push_back({500, 0, 0, -1});
    const std::string text = failure_of(scenario);
    if (::testing::Test::HasFailure()) return;
    if (text.empty()) continue;  // it was over, or had nothing to compute
    EXPECT_THAT(text, ::testing::HasSubstr("(host, pid 2000)"));
    EXPECT_THAT(text, ::testing::HasSubstr("on-worker-loss=abort"));
    ++aborted;
  }
  EXPECT_GT(aborted, 0);
}

TEST(Simulation, ALostServerEndsTheJobByName) {
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

// Two servers, one of them a step ahead when a newcomer asks, and one more when it asks again.
TEST(PushPull, ANewcomerStartsOverWhenTheVersionItWantsIsGone) {
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

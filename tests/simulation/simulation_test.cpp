// Whole clusters on a simulated network and clock, thousands of schedules, each of them a function
// of its seed. A failing one prints the seed; PUSHPULL_SIM_SEED=N runs only that seed of every
// test, PUSHPULL_SIM_SCALE=10 runs ten times as many.
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <cstring>

#include "tests/simulation/cluster.h"

namespace pushpull::sim {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kBuildScale = 0.1;
#else
constexpr double kBuildScale = 1.0;
#endif

std::vector<uint64_t> seeds(uint64_t count, std::initializer_list<uint64_t> regressions = {}) {
  if (const char* only = std::getenv("PUSHPULL_SIM_SEED")) {
    return {std::strtoull(only, nullptr, 10)};
  }
  const char* scale = std::getenv("PUSHPULL_SIM_SCALE");
  const double factor = kBuildScale * (scale == nullptr ? 1.0 : std::strtod(scale, nullptr));
  std::vector<uint64_t> out(regressions);
  const auto most = static_cast<uint64_t>(static_cast<double>(count) * factor);
  for (uint64_t seed = 1; seed <= std::max<uint64_t>(most, 1); ++seed) out.push_back(seed);
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
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
      start =
          std::make_shared<FlatState>(scenario_.counting ? toy_.counted_state(scenario_.start_step)
                                                         : reference_.at(scenario_.start_step));
    }
    cluster_ = std::make_unique<Cluster>(scenario_, start);
    cluster_->run();
    if (!cluster_->trouble().empty()) return complain(cluster_->trouble());
    if (cluster_->coordinator().phase() != wire::PHASE_FINISHED) complain("it did not finish");
  }

  void complain(const std::string& what) {
    FAIL() << what << "\n  " << scenario_.to_string() << "\n  " << cluster_->describe();
  }

  // Every checkpoint and evaluation of the run.
  void check_sync() {
    for (const auto& [step, state] : cluster_->checkpoints) {
      const FlatState& want = reference_.at(step);
      bool same = same_bits(state.weights, want.weights) && state.updates == want.updates;
      for (size_t s = 0; s < want.slots.size(); ++s) {
        same = same && same_bits(state.slots.at(s), want.slots[s]);
      }
      if (!same) return complain("other bits at step " + std::to_string(step));
    }
    for (const auto& [step, got] : cluster_->evaluations) {
      const Evaluation want = reference_.evaluation(step);
      if (got.correct != want.correct || got.total != want.total || got.loss != want.loss) {
        return complain("another evaluation at step " + std::to_string(step));
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
    if (cluster_->coordinator().training().samples() != steps * scenario_.job.global_batch) {
      return complain("samples were counted twice or not at all");
    }
  }

  void check() {
    if (!::testing::Test::HasFailure()) check_whole();
    if (::testing::Test::HasFailure()) return;
    scenario_.counting ? check_counting() : check_sync();
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
  for (const uint64_t seed : seeds(500)) {
    if (!passes(draw(seed, "sync"))) return;
  }
}

TEST(Simulation, SyncKeepsItsBitsOnABadNetwork) {
  for (const uint64_t seed : seeds(800)) {
    Scenario scenario = draw(seed, "sync");
    add_faults(scenario);
    if (!passes(scenario)) return;
  }
}

TEST(Simulation, SyncKeepsItsBitsWhenWorkersAreReplaced) {
  for (const uint64_t seed : seeds(800)) {
    Scenario scenario = draw(seed, "sync");
    if (seed % 2 == 0) add_faults(scenario);
    add_accidents(scenario, OnWorkerLoss::kWait);
    if (!passes(scenario)) return;
  }
}

TEST(Simulation, SyncKeepsItsBitsWhenTheOthersGoOn) {
  for (const uint64_t seed : seeds(800)) {
    Scenario scenario = draw(seed, "sync");
    if (seed % 2 == 0) add_faults(scenario);
    add_accidents(scenario, OnWorkerLoss::kContinue);
    if (!passes(scenario)) return;
  }
}

TEST(Simulation, AsyncAndSspTakeEveryMicroBatchOnce) {
  for (const uint64_t seed : seeds(800)) {
    if (!passes(draw(seed, strategy_of(seed)))) return;
  }
}

TEST(Simulation, AsyncAndSspTakeEveryMicroBatchOnceOnABadNetwork) {
  for (const uint64_t seed : seeds(800)) {
    Scenario scenario = draw(seed, strategy_of(seed));
    add_faults(scenario);
    if (!passes(scenario)) return;
  }
}

TEST(Simulation, AsyncAndSspTakeEveryMicroBatchOnceThoughWorkersDie) {
  for (const uint64_t seed : seeds(1200)) {
    Scenario scenario = draw(seed, strategy_of(seed));
    if (seed % 8 < 4) add_faults(scenario);
    add_accidents(scenario, seed % 3 == 0 ? OnWorkerLoss::kWait : OnWorkerLoss::kContinue);
    if (!passes(scenario)) return;
  }
}

}  // namespace
}  // namespace pushpull::sim

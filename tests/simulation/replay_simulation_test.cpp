// Records runs on the simulated network as the programs do and replays them from the record alone:
// each checkpoint must have the same bits. A failing run prints its seed, as in
// simulation_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "ps/report/run_recorder.h"
#include "ps/server/replay.h"
#include "tests/simulation/checked_run.h"
#include "tests/simulation/cluster.h"

namespace pushpull::sim {
namespace {

const char* strategy_of(uint64_t seed) {
  constexpr const char* kStrategies[] = {"async", "ssp:1", "ssp:2", "ssp:5", "backup:2"};
  return kStrategies[seed % 5];
}

// Regression seeds keep the strategies that they were drawn for.
const char* buffers_of(uint64_t seed) {
  constexpr const char* kStrategies[] = {"buffered:2", "buffered:4", "buffered:7", "buffered:1000"};
  return kStrategies[seed % 4];
}

class RecordedRun {
 public:
  explicit RecordedRun(const Scenario& scenario)
      : scenario_(scenario), toy_(scenario.job, scenario.elements, false) {
    if (scenario_.start_step > 0) {
      Reference reference(scenario_.job, toy_, 0);
      start_ = std::make_shared<FlatState>(reference.at(scenario_.start_step));
    }
    cluster_ = std::make_unique<Cluster>(scenario_, start_);
    cluster_->run();
  }

  std::string describe() const { return scenario_.to_string() + "\n  " + cluster_->describe(); }
  const Cluster& cluster() const { return *cluster_; }

  // Returns the merged record, written to bytes and read again. left: entries that did not fit.
  RunRecord record(int64_t* left) const {
    RunRecord out;
    out.job_ini = "job";
    out.servers = scenario_.servers;
    out.stages = static_cast<int>(scenario_.job.stages);
    out.total_steps = cluster_->coordinator().training()->total_steps();
    out.start = recorded_start(scenario_.job, toy_.table(), start_.get(), start_ != nullptr);
    const VersionRules rules =
        version_rules(scenario_.job, out.start, toy_.table(), scenario_.servers);
    *left = merge_logs(*cluster_->coordinator().training()->logs(), rules, out);
    return decode_record(encode_record(out), "bytes");
  }

  std::vector<float> replayed(const RunRecord& record) const {
    Replay replay(record, scenario_.job, toy_.table(), start_.get(),
                  [&](const RecordedPush& push, Replay::Weights weights) {
                    return gradient(push, weights, record.servers);
                  });
    while (replay.done() < replay.updates()) replay.next();
    return replay.weights();
  }

 private:
  // Returns the plain sum along the tree, without the worker's code.
  std::vector<float> sum(Replay::Weights weights, int64_t step, Range node) const {
    std::vector<float> out(weights.front().size());
    if (node.size() == 1) {
      one(weights, step, node.lo, out);
      return out;
    }
    const int64_t split = split_point(node);
    out = sum(weights, step, {node.lo, split});
    const std::vector<float> right = sum(weights, step, {split, node.hi});
    for (size_t i = 0; i < out.size(); ++i) out[i] += right[i];
    return out;
  }

  // Each stage computes with what it has read.
  void one(Replay::Weights weights, int64_t step, int64_t micro_batch, std::span<float> out) const {
    if (toy_.stages() == 1) return toy_.gradient(weights.front(), step, micro_batch, out);
    std::vector<Toy::Signals> inputs(1);
    for (int stage = 0; stage < toy_.stages(); ++stage) {
      inputs.push_back(toy_.forward({stage, step, micro_batch}, weights[static_cast<size_t>(stage)],
                                    inputs.back()));
    }
    Toy::Signals gradient = inputs.back();
    for (int stage = toy_.stages() - 1; stage >= 0; --stage) {
      const auto s = static_cast<size_t>(stage);
      gradient = toy_.backward({stage, step, micro_batch}, weights[s], inputs[s], gradient, out);
    }
  }

  PushGradient gradient(const RecordedPush& push, Replay::Weights weights, int servers) const {
    const auto whole = std::make_shared<std::vector<float>>(sum(weights, push.step, push.range));
    const SliceMap map(toy_.table(), scenario_.job.slice_bytes, servers);
    PushGradient out;
    for (int slice = 0; slice < map.slices(); ++slice) {
      const Range elements = map.elements(slice);
      const auto part = std::span<const float>(*whole).subspan(
          static_cast<size_t>(elements.lo), static_cast<size_t>(elements.size()));
      out.slices[slice] = {whole, std::as_bytes(part)};
    }
    return out;
  }

  const Scenario scenario_;
  Toy toy_;
  std::shared_ptr<const FlatState> start_;
  std::unique_ptr<Cluster> cluster_;
};

// Returns the part of the record in checkpoint `step`: a barrier has all updates of the steps
// before it and no others.
RunRecord up_to(const RunRecord& record, int64_t step) {
  RunRecord out = record;
  std::erase_if(out.updates, [&](const RecordedUpdate& update) {
    return record.pushes[update.push].step >= step;
  });
  // the replay would wait for a push that no server applies
  std::vector<RecordedPush> pushes;
  std::vector<size_t> place(record.pushes.size());
  for (size_t i = 0; i < record.pushes.size(); ++i) {
    place[i] = pushes.size();
    if (record.pushes[i].step < step) pushes.push_back(record.pushes[i]);
  }
  for (RecordedUpdate& update : out.updates) update.push = place[update.push];
  out.pushes = std::move(pushes);
  return out;
}

bool replays(const Scenario& scenario, int64_t* uncompensated = nullptr) {
  const RecordedRun run(scenario);
  const auto wrong = [&](const std::string& what) {
    ADD_FAILURE() << what << "\n  " << run.describe();
    return false;
  };
  if (!run.cluster().trouble().empty()) return wrong(run.cluster().trouble());
  if (run.cluster().coordinator().phase() != wire::PHASE_FINISHED) return wrong("not finished");
  int64_t left = 0;
  const RunRecord record = run.record(&left);
  if (left != 0) return wrong(std::to_string(left) + " updates fit nowhere");
  for (const auto& [step, state] : run.cluster().checkpoints) {
    if (!same_bits(run.replayed(up_to(record, step)), state.weights)) {
      return wrong("other bits at checkpoint " + std::to_string(step));
    }
  }
  if (uncompensated != nullptr) {
    *uncompensated += std::count_if(record.updates.begin(), record.updates.end(),
                                    [](const RecordedUpdate& u) { return u.uncompensated; });
  }
  return true;
}

TEST(ReplaySimulation, CalmRunReplays) {
  for (const uint64_t seed : seeds_to_run(1000)) {
    if (!replays(draw_recorded(seed, strategy_of(seed)))) return;
  }
}

TEST(ReplaySimulation, RunOnABadNetworkReplays) {
  // 6547: a worker was given up before the start, joined anew, and never repeated its declaration
  for (const uint64_t seed : seeds_to_run(1500, {6547})) {
    Scenario scenario = draw_recorded(seed, strategy_of(seed));
    add_faults(scenario);
    if (!replays(scenario)) return;
  }
}

TEST(ReplaySimulation, RunWithDeadWorkersReplays) {
  for (const uint64_t seed : seeds_to_run(2000)) {
    Scenario scenario = draw_recorded(seed, strategy_of(seed));
    if (seed % 2 == 0) add_faults(scenario);
    add_accidents(scenario, seed % 3 == 0 ? OnWorkerLoss::kWait : OnWorkerLoss::kContinue);
    if (!replays(scenario)) return;
  }
}

// Servers read pushes in place, and workers weights.
TEST(ReplaySimulation, RunOnSharedMemoryReplays) {
  for (const uint64_t seed : seeds_to_run(1500)) {
    Scenario scenario = draw_recorded(seed, strategy_of(seed));
    add_sharing(scenario);
    if (seed % 3 == 0) add_faults(scenario);
    if (seed % 2 == 0) add_accidents(scenario, OnWorkerLoss::kContinue);
    if (!replays(scenario)) return;
  }
}

TEST(ReplaySimulation, BufferedRunReplays) {
  for (const uint64_t seed : seeds_to_run(2000)) {
    Scenario scenario = draw_recorded(seed, buffers_of(seed));
    if (seed % 2 == 0) add_sharing(scenario);
    if (seed % 3 == 0) add_faults(scenario);
    if (seed % 5 < 2) add_accidents(scenario, OnWorkerLoss::kContinue);
    if (!replays(scenario)) return;
  }
}

const char* stages_of(uint64_t seed) {
  constexpr const char* kStrategies[] = {"async", "ssp:1", "ssp:3", "buffered:2", "backup:1"};
  return kStrategies[seed % 5];
}

TEST(ReplaySimulation, RunOfGroupsReplays) {
  // 742: a server without slices of a stage refused its push before a barrier; 1248: a lease went to a group whose
  // attempt had begun earlier, and its push was dropped; 1474: pushes went to a server without slices, which never
  // takes a step
  for (const uint64_t seed : seeds_to_run(1500, {742, 1248, 1474})) {
    Scenario scenario = draw_recorded_groups(seed, stages_of(seed));
    if (seed % 2 == 0) add_faults(scenario);
    if (seed % 4 == 0) add_sharing(scenario);
    if (seed % 3 == 0) {
      add_accidents(scenario, seed % 2 == 0 ? OnWorkerLoss::kWait : OnWorkerLoss::kContinue);
    }
    if (!replays(scenario)) return;
  }
}

// A killed server loses the entries that it has not reported. The record ends where they are
// missing, and its rest can be replayed.
TEST(ReplaySimulation, RecordWithoutALostServersEntriesReplays) {
  int64_t cut = 0;
  int64_t applied = 0;
  for (const uint64_t seed : seeds_to_run(400)) {
    Scenario scenario =
        draw_recorded(seed, seed % 4 == 3 ? buffers_of(seed / 4) : strategy_of(seed));
    if (scenario.servers < 2) continue;
    scenario.job.steps += 40;
    scenario.job.stop_after = 0;
    scenario.job.eval_every = 0;
    scenario.job.checkpoint_every = 0;
    scenario.compute_us = 5'000;
    scenario.server_killed_ms = 150 + static_cast<int64_t>(seed % 100);
    const RecordedRun run(scenario);
    ASSERT_EQ(run.cluster().trouble(), "") << run.describe();
    if (run.cluster().coordinator().training() == nullptr) continue;  // it never started
    int64_t left = 0;
    const RunRecord record = run.record(&left);
    cut += left;
    applied += std::ssize(record.updates);
    run.replayed(record);
  }
  expect_some(applied, "applied");
  expect_some(cut, "runs that lack a log");
}

}  // namespace
}  // namespace pushpull::sim

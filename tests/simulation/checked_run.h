// One simulated run with all its checks, and the choice of a strategy by seed. Shared by the tests
// of this folder.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/cluster.h"
#include "tests/simulation/share_reference.h"

namespace pushpull::sim {

// Returns the seeds to run: `regressions`, seeds that once failed, always come first.
using Seeds = std::initializer_list<uint64_t>;
inline std::vector<uint64_t> seeds(uint64_t count, std::initializer_list<Seeds> regressions = {}) {
  std::vector<uint64_t> found;
  for (const auto& one : regressions) found.insert(found.end(), one);
  return seeds_to_run(count, std::move(found));
}

// Expects that the runs of a test have shown something. A single seed need not.
inline void expect_some(int64_t count, const std::string& what) {
  if (seeds(1000).size() > 1) {
    EXPECT_GT(count, 0) << what;
  }
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline bool same_state(const FlatState& a, const FlatState& b) {
  bool same = same_bits(a.weights, b.weights) && a.updates == b.updates;
  for (size_t s = 0; s < b.slots.size(); ++s) same = same && same_bits(a.slots.at(s), b.slots[s]);
  return same && a.slots.size() == b.slots.size();
}

inline bool same_evaluation(const Evaluation& a, const Evaluation& b) { return a.heads == b.heads; }

// One run with its checks. The first failed check ends the test and prints the whole scenario.
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
    const bool finished = cluster_->coordinator().phase() == wire::PHASE_FINISHED;
    if (!finished && scenario_.stop_ms < 0) complain("it did not finish");
    if (!cluster_->start_weights.empty()) check_start(start);
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
  // Returns the barriers of all terms.
  Barriers barriers_of_run() const {
    Barriers barriers = cluster_->coordinator().barriers();
    barriers.start_step = scenario_.start_step;
    // a stopped run ended at its stop
    if (barriers.stop_step > 0) barriers.end_step = std::exchange(barriers.stop_step, 0);
    return barriers;
  }

  void complain(const std::string& what) {
    FAIL() << what << "\n  " << scenario_.to_string() << "\n  " << cluster_->describe();
  }

  // Checks each checkpoint and evaluation of the run.
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

  // Checks the same against a recomputation from the chosen sets of pushes (backup) or from the
  // shares (local). A part that a server took from another set would differ.
  void check_shares() {
    const Coordinator& coordinator = cluster_->coordinator();
    ShareReference shares(scenario_.job, toy_, reference_, barriers_of_run(),
                          coordinator.training()->shares());
    FlatState start = ShareReference::start_of(scenario_.job, reference_, scenario_.start_step);
    if (scenario_.start_step == 0) start.updates = 0;
    const auto states = shares.train(start, cluster_->chosen);
    for (const auto& [step, state] : cluster_->checkpoints) {
      if (!states.contains(step) || !same_state(state, states.at(step))) {
        return complain("other bits at step " + std::to_string(step));
      }
    }
    for (const auto& [step, got] : cluster_->evaluations) {
      // a stopped run evaluates nothing at its stop: this evaluation is from an earlier term
      if (coordinator.barriers().stop_step > 0 && step >= coordinator.barriers().stop_step)
        continue;
      if (!states.contains(step) ||
          !same_evaluation(got, reference_.evaluation_of(states.at(step)))) {
        return complain("another evaluation at step " + std::to_string(step));
      }
    }
    if (backup() && cluster_->coordinator().barriers().stop_step == 0) check_sets();
  }

  void check_sets() {
    const Coordinator& coordinator = cluster_->coordinator();
    const auto pushes =
        static_cast<size_t>(coordinator.training()->shares() - scenario_.job.strategy.backups);
    const Barriers& barriers = coordinator.barriers();
    int64_t micro_batches = 0;
    HashSum drawn;
    for (const auto& [step, set] : cluster_->chosen) {
      if (set.size() != pushes) return complain("a set of " + std::to_string(set.size()));
      for (int i = 0; i < coordinator.training()->shares(); ++i) {
        const Range share =
            share_range(i, coordinator.training()->shares(), scenario_.job.micro_batches());
        if (std::count(set.begin(), set.end(), share.lo) == 0) continue;
        micro_batches += share.size();
        for (int64_t m = share.lo; m < share.hi; ++m) drawn += toy_.data_hash(step, m);
      }
    }
    const int64_t steps = barriers.end_step - scenario_.start_step;
    const CommittedWork& record = coordinator.training()->committed();
    if (std::ssize(cluster_->chosen) != steps ||
        record.counts().pushes_applied != steps * static_cast<int64_t>(pushes)) {
      return complain(std::to_string(record.counts().pushes_applied) + " pushes applied");
    }
    if (record.counts().samples != micro_batches * scenario_.job.micro_batch) {
      return complain(std::to_string(record.counts().samples) + " samples");
    }
    if (record.counts().data_hash != drawn) return complain("another data hash");
    for (int64_t step = scenario_.start_step + 1; step <= barriers.end_step; ++step) {
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

  // Checks for a checkpoint at each barrier, an evaluation at the end, and each sample once.
  void check_whole() {
    const Barriers& barriers = cluster_->coordinator().barriers();
    for (int64_t step = scenario_.start_step + 1; step <= barriers.end_step; ++step) {
      if (barriers.checkpoint_due(step) && !cluster_->checkpoints.contains(step) &&
          !cluster_->lost_checkpoints.contains(step)) {
        return complain("no checkpoint at step " + std::to_string(step));
      }
    }
    if (scenario_.test_samples > 0 && !cluster_->evaluations.contains(barriers.end_step)) {
      return complain("no evaluation at the end");
    }
    const int64_t steps = barriers.end_step - scenario_.start_step;
    if (!backup() && cluster_->coordinator().training()->committed().counts().samples !=
                         steps * scenario_.job.global_batch) {
      return complain("samples were counted twice or not at all");
    }
    check_members();
    if (backup()) return;  // backup counts only the chosen pushes
    HashSum drawn;
    for (int64_t step = scenario_.start_step; step < barriers.end_step; ++step) {
      for (int64_t m = 0; m < scenario_.job.micro_batches(); ++m) drawn += toy_.data_hash(step, m);
    }
    if (cluster_->coordinator().training()->committed().counts().data_hash != drawn)
      complain("another data hash");
  }

  // Checks the last members.json: each sample belongs to a process for each stage, and each rank of the last step
  // occurs once.
  void check_members() {
    const auto document = nlohmann::json::parse(cluster_->members_json);
    int64_t samples = 0;
    for (const char* list : {"members", "left"}) {
      for (const auto& row : document.at(list)) samples += row.at("samples").get<int64_t>();
    }
    // each worker of a group has computed the samples of its group
    if (samples !=
        cluster_->coordinator().training()->committed().counts().samples * scenario_.job.stages) {
      return complain("the members have computed " + std::to_string(samples) +
                      " samples: " + cluster_->members_json);
    }
    std::set<std::pair<std::string, int>> places;
    std::set<int> servers;
    for (const auto& row : document.at("members")) {
      if (row.at("role") == "server") servers.insert(row.at("rank").get<int>());
      if (row.at("rank").is_null()) continue;
      if (places.emplace(row.at("role"), row.at("rank")).second) continue;
      return complain("a rank occurs twice: " + cluster_->members_json);
    }
    // A server lost after the last step need not return. It is in the list `left`.
    for (const auto& row : document.at("left")) {
      if (row.at("role") == "server") servers.insert(row.at("rank").get<int>());
    }
    if (std::ssize(servers) != scenario_.servers || *servers.rbegin() != scenario_.servers - 1) {
      complain("other servers: " + cluster_->members_json);
    }
  }

  // Checks the initial weights that were hashed.
  void check_start(const std::shared_ptr<const FlatState>& start) {
    const std::vector<float>& want = start ? start->weights : reference_.at(0).weights;
    if (!same_bits(cluster_->start_weights, want)) complain("other weights at the start");
  }

  // Checks a run that was told to end. Returns true if it stopped with a checkpoint at its last
  // step that holds exactly the run's steps. A resume from there is like a resume from any
  // checkpoint.
  bool check_stopped() {
    const Coordinator& coordinator = cluster_->coordinator();
    const std::string& why = coordinator.failure_text();
    const bool ended = why.starts_with("[job] ended by " + std::string(stop_name()));
    if (coordinator.failure_code() != ErrorCode::kStopped || ended) {
      // a member that is told before it hears of the start leaves at once
      const std::string at_start = "at step " + std::to_string(scenario_.start_step) + ": it left";
      const bool early = scenario_.all_signalled && why.find(at_start) != std::string::npos;
      if (!ended && !early) complain("the job failed: " + why);
      if (cluster_->summary) complain("a run without a cut has a summary");
      return false;
    }
    const int64_t step = coordinator.barriers().stop_step;
    if (!cluster_->summary || cluster_->summary->end_step != step ||
        !cluster_->summary->stopped_by.value_or("").starts_with(stop_name())) {
      complain("no summary of the run that was stopped at step " + std::to_string(step));
    } else if (!backup() && cluster_->summary->counts.samples !=
                                (step - scenario_.start_step) * scenario_.job.global_batch) {
      complain("the summary has " + std::to_string(cluster_->summary->counts.samples) + " samples");
    }
    // a coordinator that died may have been writing a later checkpoint, which is incomplete
    auto& checkpoints = cluster_->checkpoints;
    if (!scenario_.server_losses.empty()) {
      checkpoints.erase(checkpoints.upper_bound(step), checkpoints.end());
    }
    if (!checkpoints.contains(step) || checkpoints.rbegin()->first != step) {
      complain("no checkpoint at step " + std::to_string(step) + ", or a later one");
    }
    check_asked(step);
    if (::testing::Test::HasFailure()) return false;
    scenario_.counting ? check_counting() : by_shares() ? check_shares() : check_sync();
    return true;
  }

  const char* stop_name() const { return scenario_.stops_by_limit ? "time-limit" : "SIGTERM"; }

  // Checks that each checkpoint that a signal asked for is on disk. A lost server takes its own
  // along: then another follows, unless the run ends first.
  //   end: the run trained up to this step.
  void check_asked(int64_t end) {
    if (!scenario_.server_losses.empty()) return;
    for (const int64_t step : cluster_->asked_checkpoints) {
      if (step > end || cluster_->checkpoints.contains(step)) continue;
      if (cluster_->lost_checkpoints.contains(step)) continue;
      return complain("no checkpoint at step " + std::to_string(step) +
                      ", which a signal asked for");
    }
  }

  void check() {
    if (!::testing::Test::HasFailure()) check_asked(barriers_of_run().end_step);
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

inline bool passes(const Scenario& scenario) {
  Run run(scenario);
  run.go();
  run.check();
  return !::testing::Test::HasFailure();
}

inline const char* strategy_of(uint64_t seed) {
  constexpr const char* kStrategies[] = {"async", "ssp:1", "ssp:2", "ssp:5"};
  return kStrategies[seed % 4];
}

inline const char* buffers_of(uint64_t seed) {
  constexpr const char* kStrategies[] = {"buffered:2", "buffered:3", "buffered:5", "buffered:100"};
  return kStrategies[seed % 4];
}

inline const char* backups_of(uint64_t seed) {
  constexpr const char* kStrategies[] = {"backup:1", "backup:2", "backup:4"};
  return kStrategies[seed % 3];
}

inline const char* rounds_of(uint64_t seed) {
  constexpr const char* kStrategies[] = {"local:1", "local:2", "local:3", "local:7"};
  return kStrategies[seed % 4];
}

// Every strategy with servers that update.
inline const char* any_of(uint64_t seed) {
  switch (seed % 6) {
    case 0:
    case 1:
      return "sync";
    case 2:
      return strategy_of(seed / 6);
    case 3:
      return buffers_of(seed / 6);
    case 4:
      return backups_of(seed / 6);
    default:
      return rounds_of(seed / 6);
  }
}

}  // namespace pushpull::sim

// Builders for tests of servers and coordinators: jobs, tables, payloads, messages.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/layout/fixed_tree.h"
#include "common/net/message.h"
#include "ps/run/training_run.h"
#include "ps/server/commit.h"

namespace pushpull {

struct Job;
struct ServerSetup;
struct TensorTable;

// Returns a job of dummy data, plain SGD, a global batch of 4 x 2 and 10 steps. `keys` are lines of
// a job file that add to these or override them.
Job job_of(const std::string& keys = "");

// Returns a table of weights, running statistics and a bias with `total` elements. The first 100
// elements after the weights are running statistics.
TensorTable table_of(int64_t total);

// Returns n equal floats.
Payload constant_payload(int64_t n, float value);
// Returns n floats around 1, a pure function of seed and position.
Payload random_payload(int64_t n, uint64_t seed, int64_t first = 0);

std::vector<float> floats_of(const Payload& payload);

constexpr uint64_t kTermId = 11;
constexpr uint64_t kCoordinator = 12;  // incarnation of the coordinator's process
constexpr const char* kGrantKey = "a key of this run";
constexpr uint64_t kAnna = 101;  // incarnations of workers
constexpr uint64_t kBert = 102;

// Stores each event. `to_anna` are the leases for kAnna.
class ListeningObserver : public TrainingObserver {
 public:
  void on_commit(const Commit& commit) override { commits.push_back(commit); }
  void on_barrier_open(int64_t step) override { barriers.push_back(step); }
  void on_checkpoint_waits(int64_t step) override { waits.insert(step); }
  std::vector<wire::Lease> leases(uint64_t incarnation) override {
    return incarnation == kAnna ? to_anna : std::vector<wire::Lease>{};
  }

  std::vector<Commit> commits;
  std::vector<int64_t> barriers;
  std::set<int64_t> waits;  // checkpoints that had to wait for room
  std::vector<wire::Lease> to_anna;
};

// Returns the setup of server `rank` of `servers`, to which workers kAnna and kBert may push.
ServerSetup server_setup(const Job& job, int64_t elements, int rank = 0, int servers = 1,
                         int shares = 2);
wire::State state_with_workers(std::initializer_list<uint64_t> incarnations,
                               int64_t released_barrier = -1);

// Returns a whole push of share [lo, hi) to the server of `setup`, with every gradient equal to
// `value`.
Message push_message(const ServerSetup& setup, uint64_t incarnation, int64_t number, int64_t step,
                     Range share, float value);
Message pull_message(uint64_t incarnation, int64_t number, int64_t clock);

// Stores each event.
class StoringListener : public TrainingListener {
 public:
  void on_barrier_open(int64_t step, int64_t samples) override {
    barriers.emplace_back(step, samples);
  }
  void on_evaluation(const Evaluation& evaluation) override { evaluations.push_back(evaluation); }

  std::vector<std::pair<int64_t, int64_t>> barriers;  // step, samples
  std::vector<Evaluation> evaluations;
};

// Gathers and writes the snapshots of a run that are due. Returns the step of the last one, or -1.
int64_t write_snapshots(TrainingRun& run);

}  // namespace pushpull

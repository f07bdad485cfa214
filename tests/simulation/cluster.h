// A whole cluster in one process: the coordinator with server 0, more servers, workers, all of them
// on the simulated clock and network. The nodes bring events to the very machines that the programs
// drive (JobDriver, ServerMember, WorkerMember), and what these say to the network.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/net/shard_client.h"
#include "ps/coordinator/coordinator.h"
#include "ps/files/report.h"
#include "ps/files/run_history.h"
#include "tests/simulation/control_watch.h"
#include "tests/simulation/network.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/toy.h"

namespace pushpull::sim {

// Between two turns of a process that has nothing to do.
constexpr int64_t kServerTickUs = 10'000;
constexpr int64_t kWorkerTickUs = 20'000;

// Where server process `number` claims to listen.
std::string endpoint_of(int number);

class CoordinatorNode;
class ServerNode;
class WorkerNode;

class Cluster {
 public:
  // start: what a resumed run loads; null for a fresh one. Borrowed: scenario.
  Cluster(const Scenario& scenario, std::shared_ptr<const FlatState> start);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // Until the job is over and everybody has gone, something is found wrong, or the time is up.
  void run();

  // ---- what has come out ----
  // What was wrong, "" for nothing.
  const std::string& trouble() const { return trouble_; }
  // Who waits for what.
  std::string describe() const;
  const Coordinator& coordinator() const;
  std::map<int64_t, FlatState> checkpoints;   // by step
  std::set<int64_t> lost_checkpoints;         // that could not be written
  std::vector<float> start_weights;           // as the servers held them before the first push
  std::map<int64_t, Evaluation> evaluations;  // by step
  // backup: first micro-batches of the pushes that make up each step.
  std::map<int64_t, std::vector<int64_t>> chosen;
  std::optional<Summary> summary;
  std::map<int, int64_t> computed;  // micro-batches and chunks, by worker process
  // What a restarted coordinator finds: the term, and the counts in checkpoints.
  struct Disk {
    int64_t term = 0;
    uint64_t first_run = 0;
    bool started = false;
    RunHistory history;
    std::map<int64_t, RunCounts> counts;  // by step
  } disk;
  int64_t recoveries = 0;    // terms after the first
  std::string members_json;  // the newest members.json
  int64_t lost_members = 0;  // that the coordinator has given up, as it says
  int64_t early_tasks = 0;   // that have begun while their weights were coming
  int64_t early_waits = 0;   // of a layer of theirs
  // Shared memory: parts and slices that went as references.
  int64_t referred_gradients = 0;
  int64_t referred_weights = 0;
  int64_t servers_on_devices = 0;
  int64_t checkpoint_waits = 0;    // coordinators that said so
  int64_t in_place_tasks = 0;      // computed on weights where a server has them
  int64_t side_by_side_tasks = 0;  // ... where several have them
  std::vector<wire::Stats> server_stats() const;
  int workers() const { return static_cast<int>(workers_.size()); }  // processes so far
  std::optional<int> exit_code(int worker) const;  // empty: still there, or killed

  // ---- for the nodes ----
  const Scenario& scenario() const { return scenario_; }
  const Toy& toy() const { return toy_; }
  Clock& clock() { return clock_; }
  Network& network() { return network_; }
  Dice& dice() { return dice_; }
  ControlWatch& watch() { return watch_; }
  CoordinatorOptions coordinator_options();
  JoinOptions join_options(wire::Role role, int number);
  // The declaration of a worker whose data have this digest.
  wire::Declare declaration(const std::string& digest) const;
  // The coordinator has ended.
  bool over() const;
  // backup: a set that a server was told of.
  void note_chosen(const wire::Chosen& chosen);
  std::shared_ptr<const FlatState> start_state() const { return start_; }
  int control_router() const;
  int data_router(int server) const;
  int data_router(const std::string& endpoint) const;
  // Notes what is wrong and ends the simulation.
  void wrong(const std::string& text);
  // A worker, or a joined server, has ended with an error: whoever started it starts another one.
  void replace_worker();
  void replace_server();
  // Runs `event`; an Error that comes out of it is wrong.
  void guarded(const std::string& who, const std::function<void()>& event);

 private:
  void start_worker(const Newcomer& newcomer = {});
  void start_newcomer(const Newcomer& newcomer);
  void silence(const Silence& silence);
  void declare_again(int worker);
  void plan(const Accident& accident);
  void plan(const ServerLoss& loss);
  void lose_server(const ServerLoss& loss);
  void tell_to_end();
  bool everybody_gone() const;

  const Scenario& scenario_;
  std::shared_ptr<const FlatState> start_;
  Clock clock_;
  Network network_;
  Dice dice_;
  Toy toy_;
  ControlWatch watch_{*this};
  std::string trouble_;
  bool told_ = false;  // the job is told to end
  std::unique_ptr<CoordinatorNode> coordinator_;
  std::vector<std::unique_ptr<CoordinatorNode>> dead_;  // events of theirs may still come
  std::vector<std::unique_ptr<ServerNode>> servers_;    // all but the first
  std::vector<std::unique_ptr<WorkerNode>> workers_;
};

}  // namespace pushpull::sim

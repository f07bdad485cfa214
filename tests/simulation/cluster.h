// A whole cluster in one process: the coordinator with server 0, more servers and workers, all on
// the simulated clock and network. The nodes pass events to the machines that the programs drive
// (JobDriver, ServerMember, WorkerMember), and the machines' messages to the network.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/net/flat_state.h"
#include "ps/report/report.h"
#include "ps/report/term_file.h"
#include "ps/run/coordinator.h"
#include "ps/run/stop_options.h"
#include "tests/simulation/control_watch.h"
#include "tests/simulation/network.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/toy.h"

namespace pushpull::sim {

// Time between two turns of an idle process.
constexpr int64_t kServerTickUs = 10'000;
constexpr int64_t kWorkerTickUs = 20'000;

// Returns the address at which server process `number` claims to listen, and worker process `number`.
std::string endpoint_of(int number);
std::string peer_endpoint_of(int number);

class CoordinatorNode;
class Forger;
class ServerNode;
class WorkerNode;

class Cluster {
 public:
  // start: the state that a resumed run loads, or null for a fresh run. Borrows `scenario`.
  Cluster(const Scenario& scenario, std::shared_ptr<const FlatState> start);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // Runs until the job is over and all processes have ended, a check fails, or the time is up.
  void run();

  // ---- results ----
  // Returns the first failed check, or "" if there is none.
  const std::string& trouble() const { return trouble_; }
  // Returns the state of each process and its waits.
  std::string describe() const;
  const Coordinator& coordinator() const;
  std::map<int64_t, FlatState> checkpoints;  // by step
  std::optional<FlatState> best;             // checkpoint-best
  std::set<int64_t> lost_checkpoints;        // could not be written
  std::set<int64_t> asked_checkpoints;       // chosen because of a signal
  std::set<int64_t> chosen_checkpoints;  // all that the coordinator chose; Barriers forgets some
  std::vector<float> start_weights;      // on the servers, before the first push
  std::map<int64_t, Evaluation> evaluations;  // by step
  // Under backup: first micro-batches of the pushes of each step.
  std::map<int64_t, std::vector<int64_t>> chosen;
  std::optional<RunFigures> summary;
  std::map<int, int64_t> computed;  // micro-batches and chunks, by worker process
  // The state that a restarted coordinator finds: the term, and the counts in checkpoints.
  struct Disk {
    int64_t term = 0;
    uint64_t run_id = 0;
    bool started = false;
    RunHistory history;
    std::map<int64_t, RunCounts> counts;          // by step
    std::map<int64_t, EvaluationRecord> records;  // by step
  } disk;
  int64_t recoveries = 0;    // terms after the first
  std::string members_json;  // the newest members.json
  int64_t parts_tagged = 0;  // passes that workers of groups have computed
  int64_t lost_members = 0;  // members that the coordinator has given up, by its own count
  int64_t early_tasks = 0;   // tasks begun before all their weights arrived
  int64_t early_waits = 0;   // waits of such tasks for a layer
  // Shared memory: parts and slices sent by reference.
  int64_t referred_gradients = 0;
  int64_t referred_weights = 0;
  int64_t servers_on_devices = 0;
  int64_t refused_forgeries = 0;                   // by data connections
  std::set<std::pair<uint64_t, uint64_t>> givers;  // term and worker that has given own weights
  int64_t checkpoint_waits = 0;                    // coordinators that reported a wait for the disk
  int64_t in_place_tasks = 0;                      // tasks computed on weights in a server's memory
  int64_t side_by_side_tasks = 0;                  // ... in the memory of several servers
  std::vector<wire::Stats> server_stats() const;
  int workers() const { return static_cast<int>(workers_.size()); }  // processes so far
  std::optional<int> exit_code(int worker) const;  // empty if it runs or was killed

  // ---- for the nodes ----
  const Scenario& scenario() const { return scenario_; }
  const Toy& toy() const { return toy_; }
  Clock& clock() { return clock_; }
  Network& network() { return network_; }
  Dice& dice() { return dice_; }
  ControlWatch& watch() { return watch_; }
  StopOptions stop_options() const;
  CoordinatorOptions coordinator_options();
  JoinOptions join_options(wire::Role role, int number);
  // Returns the declaration of a worker with data of this digest.
  //   stage: that the worker declares; -1: the whole model.
  wire::Declare declaration(const std::string& digest, int stage = -1) const;
  // Returns true if workers declare stages: model = external.
  bool by_stage() const;
  // Returns true if the coordinator has ended.
  bool over() const;
  // Returns true if the connection belongs to a process that forges.
  bool forged(const PeerId& peer) const;
  // Under backup: stores a set that a server received, and checks that all servers receive the
  // same.
  void note_chosen(const wire::Chosen& chosen);
  std::shared_ptr<const FlatState> start_state() const { return start_; }
  int control_router() const;
  int data_router(int server) const;
  int data_router(const std::string& endpoint) const;
  // Returns where a worker listens for the others of its group.
  int peer_router(const std::string& endpoint) const;
  // Calls `closed` when this control connection of a member was closed. ControlWatch allows the
  // member one more heartbeat.
  void on_control_closed(int dealer, uint64_t incarnation, std::function<void()> closed);
  // Records a failed check and ends the simulation.
  void wrong(const std::string& text);
  // Starts a replacement for a worker or a joined server that ended with an error.
  //   stage: as in Newcomer.
  void replace_worker(int stage);
  void replace_server();
  // Runs `event`. An Error that it throws is a failed check.
  void guarded(const std::string& who, const std::function<void()>& event);

 private:
  void start_worker(const Newcomer& newcomer = {});
  void start_newcomer(const Newcomer& newcomer);
  void silence(const Silence& silence);
  void partition(const Partition& partition);
  void partition(const PeerPartition& partition);
  void declare_again(int worker);
  void plan(const Accident& accident);
  void plan(const ServerLoss& loss);
  void lose_server(const ServerLoss& loss);
  void request_end();
  bool all_ended() const;

  const Scenario& scenario_;
  std::shared_ptr<const FlatState> start_;
  Clock clock_;
  Network network_;
  Dice dice_;
  Toy toy_;
  ControlWatch watch_{*this};
  std::string trouble_;
  bool end_requested_ = false;  // the job has been told to end
  std::unique_ptr<CoordinatorNode> coordinator_;
  std::vector<std::unique_ptr<CoordinatorNode>> dead_;  // killed; their events may still be queued
  std::vector<std::unique_ptr<ServerNode>> servers_;    // all but server 0
  std::vector<std::unique_ptr<WorkerNode>> workers_;
  std::unique_ptr<Forger> forger_;
};

}  // namespace pushpull::sim

// One server's part of a job as a state machine: takes messages of workers and of the coordinator,
// says what to send. Knows no socket, thread, clock or file. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/hash_sum.h"
#include "common/job/barriers.h"
#include "common/job/job.h"
#include "common/net/message.h"
#include "ps/aggregation/aggregation.h"
#include "ps/aggregation/backup_set.h"
#include "ps/aggregation/handed_weights.h"
#include "ps/engine/shard.h"
#include "ps/record/update_log.h"
#include "ps/server/index_set.h"
#include "ps/server/narrow_weights.h"

namespace pushpull {

struct ServerSetup {
  uint64_t run = 0;          // of the job: strangers do not know it
  uint64_t incarnation = 0;  // of this process
  int rank = 0;
  int servers = 1;
  Job job;
  TensorTable table;
  Barriers barriers;
  int64_t total_steps = 0;              // schedule horizon
  int64_t updates = 0;                  // that the loaded state has had
  int shares = 1;                       // shares that a step is cut into
  bool load = false;                    // initial weights come by Load
  FloatAllocator memory = heap_floats;  // of the weights
  // What sums and updates, of this server alone; null: the host, with weights in `memory`.
  std::shared_ptr<SliceEngine> engine;
};

// The setup of the server that `state` was sent to. Throws Error(kProtocol) where its tensors
// cannot be a model.
ServerSetup setup_of(const wire::State& state, uint64_t run, uint64_t incarnation, int servers,
                     const Job& job);

// The update rule on the servers: the job's, or the outer optimizer of local:H, whose workers apply
// the job's own. Its state vectors are those that checkpoints hold.
OptimizerOptions server_optimizer(const Job& job);

// A push that became complete at a server.
struct Commit {
  uint64_t incarnation = 0;
  int64_t step = 0;
  Range range;
  std::vector<float> losses;  // of each micro-batch, step by step
  bool counted = true;        // false: these micro-batches were in already, or it was dropped
  HashSum data_hash = {};     // of the samples that were drawn
  bool dropped = false;       // backup:B: the step was made of other pushes
  int64_t steps = 1;          // local:H: it covers [step, step + steps)
};

// What the coordinator hears from the server in its own process, and gives to its workers.
class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  virtual void on_commit(const Commit& commit) = 0;
  virtual void on_barrier_open(int64_t step) = 0;
  // The checkpoint due at `step` cannot be taken yet: as many as there may be are still held.
  virtual void on_checkpoint_waits(int64_t step) = 0;
  // Everything that the worker holds and has not finished, topped up from the pool.
  virtual std::vector<wire::Lease> leases(uint64_t incarnation) = 0;
};

struct Outgoing {
  PeerId to;
  Message message;
};

class Server {
 public:
  // observer may be null. parallel: who updates weights; null: the caller's thread. Borrowed.
  Server(ServerSetup setup, TrainingObserver* observer, Parallel* parallel = nullptr);

  // A message on the data connection. False: it does not belong here and was dropped (the caller
  // counts it). Updates that have become due and answers wait for `work`, so that what comes
  // together is applied together.
  bool take(const PeerId& peer, Message message);
  // Applies what is due, then answers whom it can.
  void work();
  // Bytes of the weights that `work` would move.
  int64_t due_bytes() const { return due_bytes_; }
  // A message alone: take and work.
  bool on_data(const PeerId& peer, Message message);
  // The coordinator's newest state: workers that may push, snapshots that may go.
  void on_state(const wire::State& state);
  // The pushes that make up the running step (backup:B).
  void on_chosen(const wire::Chosen& chosen);
  // The norm of the running step's whole gradient (sync and backup:B with clip-norm).
  void on_norm_total(const wire::NormTotal& total);
  // Leases may have become available: tells workers that wait for one.
  void offer_leases();

  std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }
  // The norms of a step that waits for its total; repeated until on_norm_total. Empty when none
  // waits.
  const std::optional<wire::Norms>& waiting_norms() const { return norms_; }
  // The complete pushes of a step that waits for its set; repeated until on_chosen.
  const std::optional<wire::Arrived>& waiting_arrived() const { return arrived_; }

  bool ready() const { return to_load_.empty(); }
  int64_t floor() const { return floor_; }
  // The newest barrier whose snapshot is taken.
  int64_t open_barrier() const { return open_barrier_; }
  // What has been applied, where the job is recorded. The caller passes it to the coordinator.
  UpdateLog& log() { return log_; }
  const UpdateLog& log() const { return log_; }
  // Everything but memory and rejected frames, which the caller knows.
  wire::Stats stats() const;

 private:
  struct Assembly {
    int64_t step = 0;
    Range range;
    IndexSet seen;                    // parts that came, by slice and place in the share
    std::map<int, PartialSum> parts;  // kept until complete (not in sync)
    std::vector<float> losses;
    double squares = 0.0;
    HashSum data_hash;
    // async, ssp, once it is whole
    uint64_t incarnation = 0;
    std::vector<int64_t> reads;
  };
  // Of one lane.
  struct PendingPull {
    PeerId peer;
    wire::Pull pull;
    IndexSet unsent;  // by place in the shard
    bool open = false;
    int64_t sent_bytes = 0;      // of weights, since it came
    int64_t received_bytes = 0;  // of these, as far as the worker has said
    bool tell = false;           // how far we are, where there is nothing to send yet
    IndexSet settled;            // slices that were sent before we last told: they came or are lost
    int told = 0;                // Pull.asked, then; 0 once the worker has heard it
    int64_t sent_when_told = 0;  // sent_bytes, then
  };
  struct Worker {
    int rank = -1;
    PushTracker pushes;
    std::map<int64_t, Assembly> open;  // by push number
    int64_t pull_number = 0;           // the newest
    std::map<int, PendingPull> pulls;  // with that number, by lane
    HandedWeights handed;              // with delay compensation
    // what it may be reading in place: all that its newest pull was answered with
    std::vector<std::shared_ptr<const void>> in_place;
  };
  struct Snapshot {
    int64_t step = -1;
    int64_t updates = 0;
    std::map<int, Payload> weights;
    std::map<int, std::vector<Payload>> state;
  };

  bool sync() const { return setup_.job.strategy.kind == StrategyKind::kSync; }
  bool all_reduce() const { return setup_.job.strategy.kind == StrategyKind::kAllReduce; }
  bool backup() const { return setup_.job.strategy.kind == StrategyKind::kBackup; }
  bool local() const { return setup_.job.strategy.kind == StrategyKind::kLocal; }
  // One update for each step, and one version.
  bool lockstep() const { return setup_.job.strategy.in_lockstep(); }
  // ... of all shares: parts are summed as they come.
  bool whole_steps() const { return lockstep() && !backup(); }
  bool on_exchange(const PeerId& peer, const wire::Exchange& exchange,
                   std::vector<Payload>& payloads);
  bool on_load(const PeerId& peer, const wire::Load& load, const std::vector<Payload>& payloads);
  bool on_fetch(const PeerId& peer, const wire::Fetch& fetch);
  bool on_store(const PeerId& peer, const wire::Store& store, const std::vector<Payload>& payloads);
  bool on_report(const PeerId& peer, uint64_t incarnation, Worker& worker,
                 const wire::Exchange& exchange);
  void try_open_stored();
  bool fetch_start(const PeerId& peer, const wire::Fetch& fetch);
  void send_fetched(const PeerId& peer, const wire::Fetch& fetch, int64_t updates,
                    std::vector<Payload> payloads);
  // Share, number and step of a push can be.
  bool push_is_near(const Worker& worker, const wire::Push& push) const;
  bool push_fits(const Worker& worker, const wire::Push& push,
                 const std::vector<Payload>& payloads) const;
  void take_push(uint64_t incarnation, Worker& worker, const wire::Push& push,
                 std::vector<Payload>& payloads);
  void finish_push(Assembly assembly, int64_t steps);
  // async, ssp: one update (ps/server/server_async.cpp)
  bool reads_fit(const wire::Push& push) const;
  void apply_push(Assembly& assembly);
  // One entry of the log, where the run is recorded.
  void log_push(int rank, int64_t step, Range range, std::span<const int64_t> reads,
                bool uncompensated);
  // ps/server/server_step.cpp
  int64_t steps_of(const wire::Push& push) const { return std::max(1, push.steps()); }
  int64_t share_index(Range range) const;
  void add_step_part(int slice, int64_t step, PartialSum part);
  const std::vector<PartialSum>& step_parts(int slice) const;
  int64_t step_leaves() const;
  double step_divisor() const;
  // Where a slice lies among those of this server.
  size_t place(int slice) const { return static_cast<size_t>(slice / setup_.servers); }
  void apply_step(std::span<const int> slices, double clip);
  void apply_due();
  void keep_waiting();
  void start_norms();
  void advance_floor();
  void finish_backup_push(Assembly assembly);
  bool too_late(int64_t step) const;
  void end_backup_step();
  int64_t newest_version() const;
  bool is_past(const wire::Pull& pull) const;
  void try_open_barrier();
  bool room_for_checkpoint() const;
  bool hold_checkpoint(int64_t step);
  bool passes_barrier(int64_t step) const;
  Snapshot take_snapshot(int64_t step, bool state);
  // ps/server/server_pull.cpp
  bool pull_fits(const Worker& worker, const wire::Pull& pull) const;
  bool may_answer(const wire::Pull& pull) const;
  bool exactly_at_barrier(const wire::Pull& pull) const {
    return pull.barrier() && at_barrier_.step == pull.clock();
  }
  void take_pull(const PeerId& peer, Worker& worker, const wire::Pull& pull);
  // A pull for exactly one version: its answer can be gone on with when it is repeated.
  bool goes_on(const wire::Pull& pull) const {
    return lockstep() && !pull.latest() && !(backup() && pull.barrier());
  }
  void go_on(PendingPull& pending, const wire::Pull& pull);
  void tell(Worker& worker, PendingPull& pending);
  bool on_received(const wire::Received& received);
  bool any_version(const wire::Pull& pull) const;
  bool window_is_full(const PendingPull& pending) const;
  static void hold_in_place(Worker& worker, const Payload& weights);
  void answer(uint64_t incarnation, Worker& worker);
  void answer_with_leases(uint64_t incarnation, Worker& worker);
  void answer_lane(uint64_t incarnation, Worker& worker, PendingPull& pending);
  void answer_all();
  std::optional<std::pair<Payload, int64_t>> slice_for(const wire::Pull& pull, int slice) const;
  bool goes_narrow(const wire::Pull& pull, int64_t version) const;
  void send_status(const PeerId& peer, int64_t pull, int64_t pushes_through, bool not_ready);
  void add_leases(uint64_t incarnation, google::protobuf::RepeatedPtrField<wire::Lease>* out);

  const ServerSetup setup_;
  TrainingObserver* observer_;
  Serial serial_;
  Parallel* parallel_;
  const int64_t leaves_;
  SliceMap map_;
  Shard shard_;
  NarrowWeights narrow_;
  SyncSums sums_;      // sync, local
  BackupSet backups_;  // backup
  Ledger ledger_;
  std::set<int> to_load_;
  int64_t floor_;
  int64_t applied_slices_ = 0;  // sync, local: slices that have had the update of step floor_
  int64_t storing_step_ = -1;   // all-reduce: barrier whose slices come in
  int64_t stored_slices_ = 0;
  int64_t updates_;
  int64_t open_barrier_;
  int64_t released_barrier_ = -1;
  int64_t evaluated_barrier_ = 0;
  Snapshot at_barrier_;  // weights of the newest barrier (backup: evaluation); not in sync, local
  std::deque<Snapshot> checkpoints_;  // weights and state, oldest first, kept until released
  Snapshot start_;                    // weights of start_step, likewise
  std::optional<wire::Norms> norms_;
  std::optional<wire::Arrived> arrived_;
  std::map<uint64_t, Worker> workers_;
  std::vector<Outgoing> outgoing_;
  std::vector<int> due_slices_;       // lockstep: complete, not yet applied
  std::vector<Assembly> due_pushes_;  // async, ssp: likewise, in order of arrival
  int64_t due_bytes_ = 0;
  bool to_answer_ = false;
  std::vector<SliceUpdate> updates_now_;  // used again by every batch
  std::vector<PartialSum*> waiting_;      // likewise
  UpdateLog log_;
  wire::Stats stats_;
};

}  // namespace pushpull

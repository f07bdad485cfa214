// One server's part of a job as a state machine: takes messages of workers and of the coordinator,
// says what to send. Knows no socket, thread, clock or file. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/barriers.h"
#include "common/job.h"
#include "common/net/message.h"
#include "ps/aggregation.h"
#include "ps/shard.h"

namespace pushpull {

struct ServerSetup {
  uint64_t run = 0;          // of the job: strangers do not know it
  uint64_t incarnation = 0;  // of this process
  int rank = 0;
  int servers = 1;
  Job job;
  TensorTable table;
  Barriers barriers;
  int64_t total_steps = 0;  // schedule horizon
  int64_t updates = 0;      // that the loaded state has had
  int shares = 1;           // shares that a step is cut into
  bool load = false;        // initial weights come by Load
};

// The setup of the server that `state` was sent to. Throws Error(kProtocol) where its tensors
// cannot be a model.
ServerSetup setup_of(const wire::State& state, uint64_t run, uint64_t incarnation, int servers,
                     const Job& job);

// Share `index` of `shares`: contiguous micro-batches, sizes differ by at most one.
Range share_range(int index, int shares, int64_t micro_batches);

// A push that became complete at a server.
struct Commit {
  uint64_t incarnation = 0;
  int64_t step = 0;
  Range range;
  std::vector<float> losses;  // of each micro-batch
  bool counted = true;        // false: these micro-batches were in already
};

// What the coordinator hears from the server in its own process, and gives to its workers.
class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  virtual void on_commit(const Commit& commit) = 0;
  virtual void on_barrier_open(int64_t step) = 0;
  // Everything that the worker holds and has not finished, topped up from the pool.
  virtual std::vector<wire::Lease> leases(uint64_t incarnation) = 0;
};

struct Outgoing {
  PeerId to;
  Message message;
};

class Server {
 public:
  // observer may be null. Borrowed.
  Server(ServerSetup setup, TrainingObserver* observer);

  // A message on the data connection. False: it does not belong here and was dropped (the caller
  // counts it).
  bool on_data(const PeerId& peer, Message message);
  // The coordinator's newest state: workers that may push, snapshots that may go.
  void on_state(const wire::State& state);
  // The norm of step `step`'s whole gradient (sync with clip-norm).
  void on_norm_total(const wire::NormTotal& total);
  // Leases may have become available: tells workers that wait for one.
  void offer_leases();

  std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }
  // The norms of a step that waits for its total; repeated until on_norm_total. Empty when none
  // waits.
  const std::optional<wire::Norms>& waiting_norms() const { return norms_; }

  bool ready() const { return to_load_.empty(); }
  int64_t floor() const { return floor_; }
  // The newest barrier whose snapshot is taken.
  int64_t open_barrier() const { return open_barrier_; }
  // Everything but memory and rejected frames, which the caller knows.
  wire::Stats stats() const;

 private:
  struct Assembly {
    int64_t step = 0;
    Range range;
    std::set<std::pair<int, int>> seen;  // (slice, lo) of the parts that came
    std::map<int, PartialSum> parts;     // kept until complete (not in sync)
    std::vector<float> losses;
    double squares = 0.0;
  };
  struct PendingPull {
    PeerId peer;
    wire::Pull pull;
    std::set<int> unsent;
    bool open = false;
  };
  struct Worker {
    PushTracker pushes;
    std::map<int64_t, Assembly> open;  // by push number
    PendingPull pull;
  };
  struct Snapshot {
    int64_t step = -1;
    int64_t updates = 0;
    std::map<int, Payload> weights;
    std::map<int, std::vector<Payload>> state;
  };

  bool sync() const { return setup_.job.strategy.kind == StrategyKind::kSync; }
  bool all_reduce() const { return setup_.job.strategy.kind == StrategyKind::kAllReduce; }
  bool on_exchange(const PeerId& peer, const wire::Exchange& exchange,
                   std::vector<Payload>& payloads);
  bool on_load(const PeerId& peer, const wire::Load& load, const std::vector<Payload>& payloads);
  bool on_fetch(const PeerId& peer, const wire::Fetch& fetch);
  bool on_store(const PeerId& peer, const wire::Store& store, const std::vector<Payload>& payloads);
  bool on_report(const PeerId& peer, uint64_t incarnation, Worker& worker,
                 const wire::Exchange& exchange);
  void try_open_stored();
  bool has_start(const wire::Fetch& fetch) const;
  // Share, number and step of a push can be.
  bool push_is_near(const Worker& worker, const wire::Push& push) const;
  bool push_fits(const Worker& worker, const wire::Push& push,
                 const std::vector<Payload>& payloads) const;
  void take_push(uint64_t incarnation, Worker& worker, const wire::Push& push,
                 std::vector<Payload>& payloads);
  void finish_push(uint64_t incarnation, Worker& worker, const wire::Push& push, Assembly assembly);
  void add_sync_part(int slice, int64_t step, PartialSum part);
  void apply_sync(int slice, double clip);
  void start_norms();
  void advance_floor();
  void try_open_barrier();
  Snapshot take_snapshot(int64_t step, bool state) const;
  bool pull_fits(const wire::Pull& pull) const;
  bool may_answer(const wire::Pull& pull) const;
  bool exactly_at_barrier(const wire::Pull& pull) const {
    return !sync() && pull.barrier() && at_barrier_.step == pull.clock();
  }
  void take_pull(const PeerId& peer, uint64_t incarnation, Worker& worker, const wire::Pull& pull);
  void answer(uint64_t incarnation, Worker& worker);
  void answer_all();
  std::optional<std::pair<Payload, int64_t>> slice_for(const wire::Pull& pull, int slice) const;
  void send_status(const PeerId& peer, int64_t pull, int64_t pushes_through, bool not_ready);
  void add_leases(uint64_t incarnation, google::protobuf::RepeatedPtrField<wire::Lease>* out);

  const ServerSetup setup_;
  TrainingObserver* observer_;
  const int64_t leaves_;
  SliceMap map_;
  Shard shard_;
  SyncSums sums_;
  Ledger ledger_;
  std::set<int> to_load_;
  int64_t floor_;
  int64_t applied_slices_ = 0;  // sync: slices that have had the update of step floor_
  int64_t storing_step_ = -1;   // all-reduce: barrier whose slices come in
  int64_t stored_slices_ = 0;
  int64_t updates_;
  int64_t open_barrier_;
  int64_t released_barrier_ = 0;
  Snapshot at_barrier_;  // weights of the newest barrier
  Snapshot checkpoint_;  // weights and state, kept until released
  std::optional<wire::Norms> norms_;
  std::map<uint64_t, Worker> workers_;
  std::vector<Outgoing> outgoing_;
  wire::Stats stats_;
};

}  // namespace pushpull

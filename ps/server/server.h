// One server's part of a job as a state machine: takes messages of workers and of the coordinator
// and returns messages. Server checks the senders. PushIntake checks and assembles pushes, an
// Aggregation decides when they count and when pulls are answered, PullQueue answers them, and
// SliceTransfers moves whole slices. Does no I/O, starts no thread and reads no clock. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/job/job.h"
#include "common/layout/tensor_table.h"
#include "common/net/message.h"
#include "common/net/refusals.h"
#include "ps/engine/shard.h"
#include "ps/engine/slice_engine.h"
#include "ps/server/aggregation.h"
#include "ps/server/barrier_gate.h"
#include "ps/server/commit.h"
#include "ps/server/outgoing.h"
#include "ps/server/pull_queue.h"
#include "ps/server/push_intake.h"
#include "ps/server/slice_transfers.h"
#include "ps/server/update_logs.h"

namespace pushpull {

// The settings of a server. Plain data.
struct ServerSetup {
  uint64_t term_id = 0;      // a secret of the members
  uint64_t incarnation = 0;  // of this process
  uint64_t coordinator = 0;  // incarnation of the process that loads and fetches weights
  std::string grant_key;     // for Grants
  int rank = 0;
  int servers = 1;
  Job job;
  TensorTable table;
  int64_t start_step = 0;
  int64_t end_step = 0;
  int64_t total_steps = 0;              // horizon of the learning rate's schedule
  int64_t updates = 0;                  // of the loaded state
  int shares = 1;                       // of a step
  bool load = false;                    // initial weights arrive by Load
  bool replays = false;                 // replaces a lost server: pushes are sent again
  FloatAllocator memory = heap_floats;  // of the weights
  // Sums and updates for this server alone; null for the host engine, with weights in `memory`.
  std::shared_ptr<SliceEngine> engine;
};

// Returns the setup of the server that received `state`. Throws Error(kProtocol) if its tensors
// cannot be a model.
ServerSetup setup_of(const wire::State& state, uint64_t term_id, uint64_t incarnation, int servers,
                     const Job& job);

class Server {
 public:
  // observer: may be null. parallel: threads that update weights; null for the caller's. Borrows
  // both.
  Server(ServerSetup setup, TrainingObserver* observer, Parallel* parallel = nullptr);

  // Handles a message on the data connection. Returns the reason if the message is dropped. Updates
  // and answers wait for `work`, so that messages that arrive together are applied together.
  Checked take(const PeerId& peer, Message message);
  // Applies due updates, then answers pulls.
  void work();
  // Returns the approximate size in bytes of the updates that `work` would make.
  int64_t due_bytes() const { return aggregation_->due_bytes(); }
  // Handles one message, then does `work`.
  Checked on_data(const PeerId& peer, Message message);
  // Handles the coordinator's newest State: members, cuts, and snapshots to release.
  void on_state(const wire::State& state);
  // Handles the choice of the pushes that the running step uses (backup:B).
  void on_chosen(const wire::Chosen& chosen);
  // Handles the norm of the running step's gradient, if clipping is per step.
  void on_norm_total(const wire::NormTotal& total);
  // Call when leases may have become available: answers workers that wait for one.
  void offer_leases() { pulls_.offer_leases(outbox_); }

  std::vector<Outgoing> take_outgoing() { return std::exchange(outbox_, {}); }
  // Returns what was dropped since the last call. EarlyPushes bounds its number.
  std::vector<Dropped> take_dropped() { return std::exchange(dropped_, {}); }
  // The norms of a step that waits for its total, to be sent until on_norm_total; empty if none
  // waits.
  const std::optional<wire::Norms>& waiting_norms() const { return aggregation_->waiting_norms(); }
  // The complete pushes of a step that waits for its set, to be sent until on_chosen.
  const std::optional<wire::Arrived>& waiting_arrived() const {
    return aggregation_->waiting_arrived();
  }

  bool ready() const { return transfers_.ready(); }
  // The first step that is not complete at this server.
  int64_t floor() const { return aggregation_->floor(); }
  // The newest barrier with a snapshot.
  int64_t open_barrier() const { return gate_.newest_open(); }
  // The updates of a recorded job, which the caller passes to the coordinator.
  UpdateLog& log() { return log_; }
  const UpdateLog& log() const { return log_; }
  // All statistics but memory and rejected frames, which the caller adds.
  wire::Stats stats() const;

 private:
  AggregationSetup aggregation_setup();
  PullQueueSetup pull_setup(const SliceMap& map) const;
  Checked check_term(const wire::Sender& sender) const;
  bool may_fetch(uint64_t incarnation) const;
  // Returns true if the worker has a rank. Spares neither push nor pull.
  bool takes_part(uint64_t incarnation) const;
  bool keeps(uint64_t incarnation, int slice) const;
  Checked on_exchange(const PeerId& peer, const wire::Exchange& exchange,
                      std::vector<Payload>& payloads);
  Checked from_worker(Checked refusal, uint64_t incarnation) const;
  Checked take_exchange(const PeerId& peer, const wire::Exchange& exchange,
                        std::vector<Payload>& payloads);
  bool is_early(const wire::Push& push) const;
  Checked keep_early(const PeerId& peer, const wire::Exchange& exchange,
                     std::vector<Payload>& payloads);
  bool take_early();
  Checked on_received(const wire::Received& received);
  void keep_waiting();
  void keep(std::vector<Payload>& payloads);
  void answer_all() { pulls_.answer_all(outbox_); }

  const ServerSetup setup_;
  NoObserver no_observer_;
  Serial serial_;
  TrainingObserver& observer_;
  Parallel& parallel_;
  Shard shard_;
  BarrierGate gate_;
  UpdateLog log_;
  const std::unique_ptr<Aggregation> aggregation_;
  PushIntake pushes_;
  EarlyPushes early_;
  PullQueue pulls_;
  SliceTransfers transfers_;
  std::map<uint64_t, int> members_;           // workers that may push and pull: rank by incarnation
  std::map<uint64_t, wire::Member> keepers_;  // those that store weights
  Outbox outbox_;
  std::vector<Dropped> dropped_;
  bool to_answer_ = false;
  std::vector<PartialSum*> waiting_;  // reused by each batch
};

}  // namespace pushpull

// Decides when a push counts and when a pull is answered. Each strategy's rule is one class in a
// file of its own, made by make_aggregation; no other code asks which strategy runs. A rule takes
// checked and assembled pushes, updates the shard, and chooses the weights that answer a pull. Does
// no I/O and reads no clock. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/net/message.h"
#include "common/net/refusals.h"
#include "common/update/optimizer_options.h"
#include "ps/engine/slice_engine.h"
#include "ps/server/commit.h"

namespace pushpull {

struct Job;
class Parallel;
class Shard;
struct SliceUpdate;
struct UpdateInfo;

// The factors of a whole step's update that need norms over all servers: the clipping factor, by the
// norm of the gradient, and the trust ratios, by those of each tensor. Every server sends the squares
// of its slices, and the coordinator answers with the total; first those of the gradient, since the
// update that is measured for the trust ratios is the clipped one. Not thread-safe.
class StepNorms {
 public:
  // incarnation: of this server.
  StepNorms(const Job& job, uint64_t incarnation);

  // Returns true if the job's updates need norms.
  bool needed() const { return clip_norm_ > 0.0 || scales_; }
  // Computes the squares of slices whose sums are complete, while gradients of other slices are
  // still on their way. Each slice is added once per step.
  //   leaves, divisor: see Shard::norms.
  void add(Shard& shard, std::span<const SliceUpdate> updates, int64_t leaves, double divisor,
           Parallel& parallel);
  // Ends the sums of the step: all slices are added. The step then waits for the total over all
  // servers.
  void finish(int64_t step);
  // The squares to resend until `take`; empty if no step waits.
  const std::optional<wire::Norms>& waiting() const { return waiting_; }
  // Takes a total. Returns true if this completes the factors of the waiting step. Otherwise the
  // total was for others, or the step now waits for its second total.
  //   all: the sums of all slices; others: as in `add`.
  bool take(const wire::NormTotal& total, Shard& shard, std::span<const SliceUpdate> all,
            int64_t leaves, double divisor, Parallel& parallel);
  // Sets the factors of the step that `take` has completed; `info` borrows them until the next
  // `take`.
  void add_factors_to(UpdateInfo& info) const;

 private:
  void add_tensors(Shard& shard, std::span<const SliceUpdate> updates, int64_t leaves,
                   double divisor, Parallel& parallel);

  const double clip_norm_;  // 0: gradients are not clipped
  const bool scales_;       // the optimizer scales by tensor
  const uint64_t incarnation_;
  wire::Norms sums_;  // of the slices added so far
  std::optional<wire::Norms> waiting_;
  double clip_ = 1.0;
  std::vector<double> trust_;
};

class BarrierGate;
struct Barriers;

// The inputs of a rule. References are borrowed and outlive it.
struct AggregationSetup {
  const Job& job;
  Shard& shard;
  BarrierGate& gate;
  Parallel& parallel;  // threads for updates
  TrainingObserver& observer;
  // Called for each push that has changed the weights, in order; empty if the run is not recorded.
  std::function<void(wire::Applied)> record = {};
  uint64_t incarnation = 0;  // of this server
  int rank = 0;              // of this server
  int servers = 1;
  int shares = 1;           // shares per step
  int64_t total_steps = 0;  // schedule horizon
  int64_t updates = 0;      // updates contained in the loaded state
};

// One slice's answer to a pull.
struct SliceAnswer {
  Payload weights;
  int64_t version = 0;
  bool evaluated = false;   // an evaluation reads these bits: sent without a lossy codec
  bool at_barrier = false;  // async, ssp, backup: the weights kept at the pull's barrier
};

class Aggregation {
 public:
  explicit Aggregation(AggregationSetup setup);
  virtual ~Aggregation() = default;

  // ---- pushes ----

  // Returns the nodes of a step's tree that a push of this share contains for every slice.
  virtual std::vector<Range> nodes_of(Range share) const { return {share}; }
  // Checks that the weights exist on which the push claims to be computed, and the rule's other
  // demands. Share, number, step and parts are checked already.
  virtual Checked check(const wire::Push& push) const = 0;
  // Takes a part of a push that is still being assembled, each part once. The rule adds it to its
  // sums or leaves it in push.parts.
  virtual void take_part(ReceivedPush& push, int slice, PartialSum part) = 0;
  // Takes a push with all its parts.
  virtual void take_push(ReceivedPush push) = 0;
  // Returns true if a worker uses the memory of a push again once it is acknowledged
  // (Schedule::acknowledged_is_applied), though the push waits for others.
  virtual bool acknowledged_is_applied() const { return false; }
  // Returns the approximate size in bytes of the updates that `apply_due` would make.
  int64_t due_bytes() const { return due_bytes_; }
  // Applies all updates due since the last call as one batch. Returns true if a barrier has opened.
  virtual bool apply_due() = 0;
  // Calls visit(part) for all parts that wait for others.
  virtual void for_waiting(const std::function<void(PartialSum&)>& /*visit*/) {}

  // ---- pulls ----

  // Returns the weights of one slice that answer the pull now, or nothing if it must wait.
  virtual std::optional<SliceAnswer> answer(const wire::Pull& pull, int slice) const = 0;
  // Returns true if exactly one version answers the pull: slices may then be answered one by one as
  // they become ready. Otherwise all slices are answered at the same time.
  virtual bool asks_for_one_version(const wire::Pull& pull) const = 0;
  // Returns true if the one version that the pull asks for is gone: the worker must ask again.
  virtual bool is_past(const wire::Pull& /*pull*/) const { return false; }
  virtual Checked check(const wire::Pull& /*pull*/) const { return {}; }
  // Notes that the worker has been sent this answer.
  virtual void on_answered(uint64_t /*incarnation*/, int /*slice*/, const SliceAnswer& /*a*/) {}

  // ---- control ----

  // Each returns true if pulls may have become answerable.
  virtual bool on_chosen(const wire::Chosen& /*chosen*/) { return false; }
  virtual bool on_norm_total(const wire::NormTotal& /*total*/) { return false; }
  virtual bool try_open_barrier() = 0;
  // Sets the members: rank by incarnation of each worker.
  virtual void on_members(const std::map<uint64_t, int>& /*members*/) {}
  // Requests to the coordinator, to be resent until it answers; empty if none is open.
  virtual const std::optional<wire::Norms>& waiting_norms() const;
  virtual const std::optional<wire::Arrived>& waiting_arrived() const;

  // ---- weights that workers keep (all-reduce) ----

  virtual Checked check(const wire::Store& store) const;
  // Returns false if the worker must retry: the previous barrier's snapshot must be taken first.
  virtual bool take_stored(const wire::Store& /*s*/, std::span<const Payload>) { return false; }
  // Returns true if the push is refused for now, so that its worker does not reach a held step. The
  // worker resends it.
  virtual bool puts_off(const wire::Push& /*push*/) const { return false; }
  // Returns true if workers fetch the optimizer's state at the start.
  virtual bool start_has_state() const { return false; }

  // The first incomplete step: the weights contain all updates of the steps below it.
  int64_t floor() const { return floor_; }
  int64_t updates() const { return updates_; }
  // Number of updates by staleness.
  const std::map<int64_t, int64_t>& staleness() const { return staleness_; }

 protected:
  // Allocates memory for this many generations of weights beside the current one.
  void reserve(int generations);
  // The part of `check` that most rules share.
  //   needed_floor: lowest floor that the weights may have on which the push was computed.
  Checked check_basis(const wire::Push& push, int64_t needed_floor) const;
  // Adds one entry to the record: the push is part of the newest update.
  //   more: the push recorded next is part of it, too.
  void record(const ReceivedPush& push, std::span<const int64_t> reads, bool more,
              bool uncompensated) const;
  // Returns the learning rate of a step.
  //   said: by the worker of its first push, see ReceivedPush.
  double rate(int64_t step, std::optional<double> said) const;
  const Barriers& barriers() const;
  Shard& shard() const { return setup_.shard; }

  const AggregationSetup setup_;
  const int64_t leaves_;  // micro-batches per step
  int64_t floor_;
  int64_t updates_;
  int64_t due_bytes_ = 0;
  std::map<int64_t, int64_t> staleness_;
};

// Maps each strategy to the rule that runs it on the servers; the only place that does. Any thread.
// Makes the rule for setup.job's strategy.
std::unique_ptr<Aggregation> make_aggregation(AggregationSetup setup);

// Returns the update rule of the servers: the job's own, or the outer optimizer of local:H, under
// which workers apply the job's own. Checkpoints hold its state vectors.
OptimizerOptions server_optimizer(const Job& job);

}  // namespace pushpull

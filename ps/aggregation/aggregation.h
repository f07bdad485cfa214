// Decides when a push counts and when a pull is answered. Each strategy's rule is
// one class in a file of its own, made by make_aggregation; nobody else asks which strategy runs.
// A rule takes pushes that have been checked and assembled, moves the shard, and says which weights
// answer a pull. Knows no socket, clock or file. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "common/net/message.h"
#include "common/net/refusal.h"
#include "ps/aggregation/aggregation_setup.h"
#include "ps/aggregation/received_push.h"

namespace pushpull {

class Aggregation {
 public:
  explicit Aggregation(AggregationSetup setup);
  virtual ~Aggregation() = default;

  // ---- pushes ----

  // The nodes of the tree over a step that a push of this share brings for every slice.
  virtual std::vector<Range> nodes_of(Range share) const { return {share}; }
  // Whether the weights exist that the push says it was computed on, and this rule's other demands.
  // Its share, number, step and parts are checked already.
  virtual Checked check(const wire::Push& push) const = 0;
  // A part of a push that is still being assembled, each once. The rule takes it into its sums or
  // leaves it in push.parts.
  virtual void take_part(ReceivedPush& push, int slice, PartialSum part) = 0;
  // All parts of a push have come.
  virtual void take_push(ReceivedPush push) = 0;
  // Bytes of the updates that `apply_due` would make.
  int64_t due_bytes() const { return due_bytes_; }
  // Applies what has become due since the last call, as one batch. True: a barrier has opened.
  virtual bool apply_due() = 0;
  // visit(part) for all parts that wait for others.
  virtual void for_waiting(const std::function<void(PartialSum&)>& /*visit*/) {}

  // ---- the rule that answers pulls ----

  // The weights of one slice that answer the pull now; empty: it must wait.
  virtual std::optional<SliceAnswer> answer(const wire::Pull& pull, int slice) const = 0;
  // Exactly one version answers it, so slices may be answered one by one as they become ready.
  // Otherwise all of them are answered at one time.
  virtual bool asks_for_one_version(const wire::Pull& pull) const = 0;
  // The one version that it asks for is gone: the worker must look anew.
  virtual bool is_past(const wire::Pull& /*pull*/) const { return false; }
  virtual Checked check(const wire::Pull& /*pull*/) const { return {}; }
  // The worker has been sent this answer.
  virtual void on_answered(uint64_t /*incarnation*/, int /*slice*/, const SliceAnswer& /*a*/) {}

  // ---- control ----

  // These return true where pulls may have become answerable.
  virtual bool on_chosen(const wire::Chosen& /*chosen*/) { return false; }
  virtual bool on_norm_total(const wire::NormTotal& /*total*/) { return false; }
  virtual bool try_open_barrier() = 0;
  // Only these workers are members from now on: rank by incarnation.
  virtual void on_members(const std::map<uint64_t, int>& /*members*/) {}
  // To be sent to the coordinator again and again; empty when nothing waits for its answer.
  virtual const std::optional<wire::Norms>& waiting_norms() const;
  virtual const std::optional<wire::Arrived>& waiting_arrived() const;

  // ---- weights that workers keep (all-reduce) ----

  virtual Checked check(const wire::Store& store) const;
  // False: not yet, the snapshot of the barrier before must be taken first.
  virtual bool take_stored(const wire::Store& /*s*/, std::span<const Payload>) { return false; }
  // It is not taken in now, so that its worker does not come to a step that is held; it comes again.
  virtual bool puts_off(const wire::Push& /*push*/) const { return false; }
  // Workers fetch the optimizer's state at the start.
  virtual bool start_has_state() const { return false; }

  // The first step that is not complete: all updates of the steps below it are in the weights.
  int64_t floor() const { return floor_; }
  int64_t updates() const { return updates_; }
  // Staleness -> updates.
  const std::map<int64_t, int64_t>& staleness() const { return staleness_; }

 protected:
  // Makes memory for so many generations of weights beside the first one.
  void reserve(int generations);
  // The part of `check` of a push that most rules share.
  //   needed_floor: of the weights that it was computed on.
  Checked check_basis(const wire::Push& push, int64_t needed_floor) const;
  // One entry of the record: the push has entered the newest update.
  //   more: so will the push that is recorded next.
  void record(const ReceivedPush& push, std::span<const int64_t> reads, bool more,
              bool uncompensated) const;
  const Barriers& barriers() const { return setup_.gate.barriers(); }
  Shard& shard() const { return setup_.shard; }

  const AggregationSetup setup_;
  const int64_t leaves_;  // micro-batches of a step
  int64_t floor_;
  int64_t updates_;
  int64_t due_bytes_ = 0;
  std::map<int64_t, int64_t> staleness_;
};

}  // namespace pushpull

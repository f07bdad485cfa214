// Decides what a worker computes next, which weights fit it, what a pull must request and what a
// push covers. Each way in which servers count pushes (docs/strategies.md) has one schedule, made
// by make_schedule; no other code asks for the strategy. A state machine: its only input from the
// coordinator is shares and leases; it does no I/O, starts no thread and reads no clock. Used by
// PushPull, on its thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/layout/fixed_tree.h"
#include "common/net/message.h"
#include "worker/exchange/share_list.h"

namespace pushpull {

// The weights, or the lease, that a pull requests.
struct PullAim {
  enum Versions {
    kExact,      // version `clock` of every slice; a slice is final when it arrives
    kNewest,     // the current version of each server; they may differ
    kPerServer,  // one version for all slices of a server
  };
  Versions versions = kExact;
  int64_t clock = 0;         // step to compute with these weights, or the barrier
  bool at_barrier = false;   // the weights at barrier `clock`, if servers still have them
  bool may_be_past = false;  // kExact: a server may be past `clock`; the pull is then abandoned
  bool leases = false;       // requests a lease instead of weights
  int64_t attempt = 0;       // of the group that wants it, if it draws leases
  // kPerServer, in a group: the weights contain this push of it, as they would without stages
  std::optional<Task> after = {};

  // Returns true if servers answer at once, with their current versions.
  bool is_newest() const { return versions == kNewest && !at_barrier; }
};

// Describes the weights of a complete pull.
struct PulledWeights {
  PullAim aim;
  int64_t min_version = 0;  // over all slices
  int64_t max_version = 0;
  bool at_barrier = false;  // the weights are exactly those at the aim's barrier
};

class Schedule {
 public:
  struct Decision {
    Task task;                    // kWait if `pull` is set
    std::optional<PullAim> pull;  // must complete before the next task
  };

  virtual ~Schedule() = default;

  // ---- events ----
  // Takes the newest State's shares and leases. Returns true if a share is new, or if there is a
  // lease to work on; a running pull must then be abandoned if gives_up() is true for it. Throws
  // Error(kProtocol).
  virtual bool on_shares(const wire::State& /*state*/) { return false; }
  // Takes new leases. Returns true if there is a lease to work on; see on_shares.
  virtual bool on_leases(const google::protobuf::RepeatedPtrField<wire::Lease>& /*leases*/) {
    return false;
  }
  // Takes a complete pull. Returns the pull needed instead if these weights do not fit; the caller
  // then drops them. Otherwise they are in use from now on.
  virtual std::optional<PullAim> on_weights(const PulledWeights& weights) = 0;
  // Called when a pull is abandoned while the weights in use are in a server's memory. The server
  // may overwrite them now, because it takes a newer pull as proof that they are no longer read.
  virtual void on_weights_released() = 0;
  // Called when the push of a task is complete, or when the evaluation is reported.
  virtual void on_pushed(int64_t step, Range range) = 0;
  virtual void on_evaluated() = 0;

  // ---- a group of workers that divides the model ----
  // After each change of the group: returns the step from which this worker can begin, once it is known. The lowest
  // one of all members counts. 0: the coordinator, or stage 0, names the steps.
  virtual std::optional<int64_t> proposed_step() const { return 0; }
  // The group begins at this step.
  virtual void begin_at(int64_t /*step*/) {}
  // Returns true at stage 0 if it tells the others each task, because they cannot know which is next.
  virtual bool leads() const { return false; }
  // Returns true if this worker needs stage 0 to tell it the next task.
  virtual bool awaits_task() const { return false; }
  // Stage 0 has told this task. Throws Error(kProtocol) if the group has no such task.
  virtual void follow(const Task& /*task*/) {}

  // ---- queries ----
  virtual Decision next() const = 0;
  // Returns the next task, whether or not its weights have arrived, or nothing if none is left.
  virtual std::optional<Task> wanted() const = 0;
  // Returns true if the weights in use are those of this task.
  virtual bool weights_fit(const Task& task) const = 0;
  // Returns true if servers have passed the barrier of the evaluation that the group must begin. Another member may
  // still have its weights, so this one tells it that the evaluation is not repeated.
  virtual bool is_past_barrier() const { return false; }
  // Returns the task that probably follows the wanted one.
  virtual std::optional<Task> upcoming() const = 0;
  // Returns the pull that will follow the push for `step`, if that is certain while the push is
  // running.
  virtual std::optional<PullAim> pull_after(int64_t /*step*/) const { return std::nullopt; }
  // Returns true if a new share or lease makes this pull void: servers may be waiting for that work
  // before they answer.
  virtual bool gives_up(const PullAim& pull) const = 0;
  // Returns true if this worker has nothing to do until the coordinator assigns something.
  virtual bool idle() const { return false; }

  // ---- what a push covers ----
  // Returns the number of steps n that a push for `step` covers: [step, step + n).
  virtual int64_t steps_from(int64_t /*step*/) const { return 1; }
  // Returns the nodes of the gradient tree that a push of these micro-batches consists of.
  virtual std::vector<Range> nodes(Range range) const { return {range}; }
  // Returns the coordinator's grant to push the wanted task, which has these micro-batches.
  virtual wire::Grant grant(Range range) const = 0;
  // Returns true if an acknowledgement means that the push was applied. If false, it only means
  // that the push has arrived; the server may still read it until a newer version exists.
  virtual bool acknowledged_is_applied() const = 0;

  // ---- leases ----
  // Returns true if pulls of server 0 request leases newer than newest_lease().
  virtual bool draws_leases() const { return false; }
  virtual int64_t newest_lease() const { return 0; }
};

}  // namespace pushpull

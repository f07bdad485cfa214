// Decides what a worker computes next, which weights fit it, what a pull must ask for, and what a
// push covers. Each way in which servers count pushes (docs/strategies.md) has one schedule, made
// by make_schedule; nobody else asks which strategy runs. State machines: they know no message but
// the coordinator's shares and leases, no socket, clock or thread. Used by PushPull, on its thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/layout/fixed_tree.h"
#include "common/net/message.h"
#include "worker/schedule/task.h"

namespace pushpull {

// The weights, or the lease, that a pull must bring.
struct PullAim {
  enum Versions {
    kExact,      // version `clock` of every slice: a slice that has come is final
    kNewest,     // whatever version each server has, which may differ
    kPerServer,  // one version of all slices of a server
  };
  Versions versions = kExact;
  int64_t clock = 0;         // step that will be computed with these weights, or the barrier
  bool at_barrier = false;   // the weights at barrier `clock`, where servers still have them
  bool may_be_past = false;  // kExact: a server that has nothing to answer with is past `clock`;
                             // the pull is given up then, and the schedule asked anew
  bool leases = false;       // no weights: a lease

  // At once, with whatever version each server has.
  bool is_newest() const { return versions == kNewest && !at_barrier; }
};

// The weights of a pull are complete.
struct PulledWeights {
  PullAim aim;
  int64_t least_version = 0;  // over all slices
  int64_t most_version = 0;
  bool at_barrier = false;  // they are exactly those at the aim's barrier
};

class Schedule {
 public:
  struct Decision {
    Task task;                    // kWait where `pull` is set
    std::optional<PullAim> pull;  // what must be pulled before anything can be computed
  };

  virtual ~Schedule() = default;

  // ---- events ----
  // The coordinator's newest word on this worker's shares. True: there is a new one, and a pull
  // under way for which `gives_up` is true must be given up. Throws Error(kProtocol).
  virtual bool on_shares(const wire::State& /*state*/) { return false; }
  // True: there is a lease to work on.
  virtual bool on_leases(const google::protobuf::RepeatedPtrField<wire::Lease>& /*leases*/) {
    return false;
  }
  // Returns the pull that is needed instead, where these weights do not do: they are dropped then,
  // and otherwise in use from here on.
  virtual std::optional<PullAim> on_weights(const PulledWeights& weights) = 0;
  // A pull was given up while the weights in use lay with a server, who may write there from here
  // on: it takes a newer pull for word that they are no longer read.
  virtual void on_weights_let_go() = 0;
  // The push for a task is complete; the evaluation is reported.
  virtual void on_pushed(int64_t step, Range range) = 0;
  virtual void on_evaluated() = 0;

  // ---- queries ----
  virtual Decision next() const = 0;
  // The task that comes next, whether its weights are here or not; none: nothing is left.
  virtual std::optional<Task> wanted() const = 0;
  // The weights in use are those of this task.
  virtual bool weights_fit(const Task& task) const = 0;
  // The task that will probably be computed after the wanted one.
  virtual std::optional<Task> upcoming() const = 0;
  // The pull that will follow the push for `step`, where that is certain while it goes on.
  virtual std::optional<PullAim> pull_after(int64_t /*step*/) const { return std::nullopt; }
  // A new share may be what the servers are waiting for before they answer this pull.
  virtual bool gives_up(const PullAim& pull) const = 0;
  // Only the coordinator can give this worker something to do.
  virtual bool idle() const { return false; }

  // ---- what a push covers ----
  // The steps [step, step + n) of a push for `step`.
  virtual int64_t steps_from(int64_t /*step*/) const { return 1; }
  // The partial sums that a push of these micro-batches consists of.
  virtual std::vector<Range> nodes(Range range) const { return {range}; }
  // The coordinator's grant to push them: those of the wanted task.
  virtual wire::Grant grant(Range range) const = 0;
  // Servers acknowledge what they have applied. Otherwise they acknowledge what has arrived, and
  // may read it until a newer version is there.
  virtual bool acknowledged_is_applied() const = 0;

  // ---- leases ----
  // Pulls of server 0 ask for leases newer than `newest_lease`.
  virtual bool draws_leases() const { return false; }
  virtual int64_t newest_lease() const { return 0; }
};

}  // namespace pushpull

// The interface between a server and the coordinator in its process: commits, barriers, leases.
// Plain data and one interface. Used by the server's thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/hash_sum.h"
#include "common/layout/fixed_tree.h"
#include "common/net/message.h"
#include "ps/engine/slice_engine.h"

namespace pushpull {

// A push that has become complete at a server.
struct Commit {
  uint64_t incarnation = 0;
  int64_t step = 0;
  Range range;
  std::vector<float> losses;  // per micro-batch, step by step
  bool counted = true;        // false if its micro-batches had counted before, or it was dropped
  HashSum data_hash = {};     // of the samples drawn
  bool dropped = false;       // backup:B: the step used other pushes
  int64_t steps = 1;          // local:H: covers [step, step + steps)
  std::vector<wire::BadGradient> bad = {};   // micro-batches that count as zeros
  int64_t staleness = 0;                     // updates since the version that it was computed on
  std::vector<uint64_t> others = {};         // that pushed other stages; incarnations
  int64_t attempt = 0;                       // of the group; 0 without one
  std::optional<double> learning_rate = {};  // see ReceivedPush
};

class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  virtual void on_commit(const Commit& commit) = 0;
  virtual void on_barrier_open(int64_t step) = 0;
  // Reports that the checkpoint due at `step` must wait: too many earlier snapshots are held.
  virtual void on_checkpoint_waits(int64_t step) = 0;
  // Returns the worker's unfinished leases, topped up from the pool.
  virtual std::vector<wire::Lease> leases(uint64_t incarnation) = 0;
  // Returns the newest complete step, or nothing if this process does not know it.
  virtual std::optional<wire::Progress> progress() const { return {}; }
};

// For servers without a coordinator in their process.
class NoObserver : public TrainingObserver {
 public:
  void on_commit(const Commit& /*commit*/) override {}
  void on_barrier_open(int64_t /*step*/) override {}
  void on_checkpoint_waits(int64_t /*step*/) override {}
  std::vector<wire::Lease> leases(uint64_t /*incarnation*/) override { return {}; }
};

// A push as one server receives it: one share's gradient of one step, assembled from one or several
// messages, and from the pushes of all stages if a group of workers divides the model. Plain data.
// Not thread-safe.
struct ReceivedPush {
  uint64_t incarnation = 0;  // of the worker; in a group, of the one with the last stage
  int rank = -1;             // of the worker
  int64_t step = 0;
  int64_t steps = 1;          // covers [step, step + steps)
  Range range;                // micro-batches
  std::vector<float> losses;  // per micro-batch, step by step; only server 0 gets them
  double squares = 0.0;       // squared norm of its mean gradient; if clipping is per push
  HashSum data_hash = {};     // of the samples drawn
  std::vector<wire::BadGradient> bad = {};  // micro-batches that count as zeros; server 0 only
  std::vector<int64_t> reads =
      {};  // by server: version that it was computed on; of stages, the oldest
  std::vector<int64_t> reads_of_stages =
      {};                                // by stage and server; -1: nothing; empty without a group
  std::map<int, PartialSum> parts = {};  // by slice, unless the rule has taken them
  std::vector<uint64_t> others = {};     // of the group; incarnations
  int64_t attempt = 0;                   // of the group
  std::optional<double> learning_rate = {};  // that the worker's program has said
};

// Makes the commit of a push and moves the losses into it.
//   counted: its micro-batches enter the weights by this push.
inline Commit commit_of(ReceivedPush& push, bool counted) {
  Commit commit{push.incarnation, push.step, push.range, std::move(push.losses), counted};
  commit.data_hash = push.data_hash;
  commit.steps = push.steps;
  commit.bad = std::move(push.bad);
  commit.others = std::move(push.others);
  commit.attempt = push.attempt;
  commit.learning_rate = push.learning_rate;
  return commit;
}

}  // namespace pushpull

// async and ssp:S: each push is one update, in the order in which pushes become complete at this
// server. Pulls get the newest weights, under ssp:S once every worker's clock is close enough
// (bounded staleness: Ho et al., NIPS 2013; Petuum Bosen). Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/layout/fixed_tree.h"
#include "common/net/message.h"
#include "ps/engine/shard.h"
#include "ps/server/aggregation.h"
#include "ps/server/ledger.h"

namespace pushpull {

struct Job;
struct UpdateInfo;

// The update of a server by one push of async or ssp; docs/strategies.md has the formulas. Server
// and replay share it, so that both compute the same bits. Any thread.
struct AsyncPush {
  int64_t step = 0;
  Range range;            // micro-batches in its sum
  double squares = 0.0;   // squared norm of its mean gradient over all servers; for clip-norm
  int64_t staleness = 0;  // updates of this server since the version that the push read
  std::optional<double> rate = {};  // that the worker's program has said
};

//   total_steps: the schedule's horizon.
UpdateInfo async_update(const Job& job, int64_t total_steps, const AsyncPush& push);

// The weights sent to one worker, kept until the push computed on them arrives: delay compensation
// needs them. Holds references, not copies: a server never changes weights in place. Not
// thread-safe.
class HandedWeights {
 public:
  // A worker computes on one version at a time, but repeated answers may add versions.
  static constexpr size_t kMaxVersions = 4;

  void keep(int64_t version, int slice, const Payload& weights);
  // Returns the slices sent in this version, by slice, or null if none are kept.
  const std::map<int, Payload>* find(int64_t version) const;
  // Call when the worker's next push must be computed on this version or a later one.
  void forget_before(int64_t version);
  size_t versions() const { return versions_.size(); }

 private:
  std::map<int64_t, std::map<int, Payload>> versions_;
};

// Returns the floor that a pull at `clock` needs: max(clock - bound, last barrier at or before
// clock).
//   bound: of the staleness, in clocks; empty if there is none.
int64_t needed_floor(std::optional<int64_t> bound, const Barriers& barriers, int64_t clock);

class SinglePushes : public Aggregation {
 public:
  //   bound: see needed_floor.
  SinglePushes(AggregationSetup setup, std::optional<int64_t> bound);

  using Aggregation::check;
  Checked check(const wire::Push& push) const override;
  void take_part(ReceivedPush& push, int slice, PartialSum part) override;
  void take_push(ReceivedPush push) override;
  bool acknowledged_is_applied() const override { return true; }
  bool apply_due() override;
  std::optional<SliceAnswer> answer(const wire::Pull& pull, int slice) const override;
  bool asks_for_one_version(const wire::Pull& /*pull*/) const override { return false; }
  void on_answered(uint64_t incarnation, int slice, const SliceAnswer& answer) override;
  bool try_open_barrier() override;
  void on_members(const std::map<uint64_t, int>& members) override;

 protected:
  // Hooks for rules that gather pushes before they update the weights. Applies or gathers a push
  // with micro-batches that have not counted before.
  virtual void count(ReceivedPush push);
  // Applies all gathered pushes. Called before a barrier opens.
  virtual void flush() {}

 private:
  // Returns true if a barrier has opened.
  bool finish(ReceivedPush push);
  // Returns the weights that the push was computed on, by slice, or null if some are no longer
  // kept.
  const std::map<int, Payload>* base_of(const ReceivedPush& push, int64_t read) const;

  const std::optional<int64_t> bound_;
  Ledger ledger_;
  std::vector<ReceivedPush> due_;             // in order of arrival
  std::map<uint64_t, HandedWeights> handed_;  // by worker; with delay compensation
  std::vector<SliceUpdate> now_;              // reused by every push
};

}  // namespace pushpull
